"""COPY INTO: the options of files, the history of loaded files, the rows of its answer."""
