# What a user's server is made of, for Docker and Kubernetes. Build the wheel first: make wheel
FROM python:3.12-slim
COPY dist/*.whl /tmp/
RUN set -e; wheel=$(ls /tmp/paimon_magics-*.whl) \
 && pip install --no-cache-dir "$wheel[java]" 'jupyterhub>=5.3' jupyterlab \
 && rm /tmp/*.whl \
 && useradd --uid 1000 --create-home --home-dir /srv/user user
COPY notebooks/jupyterhub/ipython_config.py /usr/local/etc/ipython/
USER 1000
WORKDIR /srv/user
EXPOSE 8888
CMD ["jupyterhub-singleuser"]
