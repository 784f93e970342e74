# The hub with its proxy. No user's code runs here.
FROM python:3.12-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends npm \
 && npm install --global configurable-http-proxy@5 \
 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir 'jupyterhub>=5.3' dockerspawner==14.0.0
COPY deploy/hub/paimon.py deploy/hub/docker/jupyterhub_config.py deploy/hub/docker/site.py /etc/jupyterhub/
WORKDIR /srv/paimon-hub
# A hub whose configuration can't be read must not begin without it.
ENV TRAITLETS_APPLICATION_RAISE_CONFIG_FILE_ERROR=1
EXPOSE 8000
ENTRYPOINT ["jupyterhub", "--config", "/etc/jupyterhub/jupyterhub_config.py"]
