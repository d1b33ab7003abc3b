# The collector and the command line. From the repository's root:
#   docker build -f deploy/docker/collector.Dockerfile -t hyperscout/collector:0.1.0 .
#
# The base is pinned by a tag of one Debian point release; its digest could not be looked up where this was written.
# Pin it where you build: --build-arg BASE=debian:12.12-slim@sha256:...
ARG BASE=debian:12.12-slim

FROM ${BASE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-pip python3-venv \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all:
COPY deploy/docker/build.requirements.txt deploy/docker/collector.requirements.txt /src/deploy/docker/
RUN python3 -m venv /build \
 && /build/bin/pip install --require-hashes -r /src/deploy/docker/build.requirements.txt \
 && python3 -m venv --without-pip /opt/hyperscout \
 && /build/bin/pip --python /opt/hyperscout/bin/python install --require-hashes --no-deps \
      -r /src/deploy/docker/collector.requirements.txt
COPY . /src
RUN cd /src \
 && /build/bin/python -m hatchling build -t wheel -d /wheel \
 && /build/bin/pip --python /opt/hyperscout/bin/python install --no-index --no-deps /wheel/*.whl \
 && /opt/hyperscout/bin/python -m compileall -q /opt/hyperscout/lib

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="hyperscout collector" \
      org.opencontainers.image.description="Infers the network topology of a cluster and publishes it as HyperNodes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The interpreter, without pip and without a compiler. Debian's security updates come with each build.
RUN apt-get update \
 && apt-get upgrade -y \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* /var/log/* \
 && install -d -o 10001 -g 10001 /var/lib/hyperscout
COPY --from=build /opt/hyperscout /opt/hyperscout
ENV PATH=/opt/hyperscout/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 50051 50052 50054
ENTRYPOINT ["hyperscout"]
CMD ["collector"]
