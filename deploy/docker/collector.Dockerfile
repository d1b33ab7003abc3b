# The collector and the command line; in the image no shell, package manager, compiler or pip.
# `make images` builds it; or, from the repository's root:
#   docker build -f deploy/docker/collector.Dockerfile -t hyperscout/collector:0.1.0 .
#
# The base is pinned by a tag of one Debian point release; its digest could not be looked up where this was written.
# Pin it where you build: --build-arg BASE=debian:12.12-slim@sha256:...
# A package index of your own, a proxy or a CA: --secret id=pip,src=pip.conf --secret id=ca,src=ca.pem (`cert` in
# pip.conf is then /run/ca.pem) and --secret id=apt,src=apt.conf. None of them gets into the image.
ARG BASE=debian:12.12-slim

# The tools that both images are built with, and hyperscout itself. The text is the same in both recipes, so that the
# builder runs these steps once.
FROM ${BASE} AS build
RUN --mount=type=secret,id=apt,target=/etc/apt/apt.conf.d/99secret \
    apt-get update \
 && apt-get upgrade -y \
 && apt-get install -y --no-install-recommends binutils infiniband-diags python3 python3-pip python3-venv \
 && rm -rf /var/lib/apt/lists/* /var/log/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all:
COPY deploy/docker/build.requirements.txt /src/deploy/docker/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/ca.pem \
    python3 -m venv /build \
 && /build/bin/pip install --require-hashes -r /src/deploy/docker/build.requirements.txt

# hyperscout itself: a layer of a few megabytes, which is all that an upgrade pulls; and the map, for the collector.
FROM build AS own
COPY . /src
RUN cd /src \
 && /build/bin/python -m hatchling build -t wheel -d /wheel \
 && python3 -m venv --without-pip /opt/hyperscout \
 && /build/bin/pip --python /opt/hyperscout/bin/python install --no-index --no-deps --no-compile --root /own /wheel/*.whl \
 && find /own -name '*.pyi' -delete \
 && rm -r /own/opt/hyperscout/share \
 && mkdir /map \
 && cd /own \
 && find . -type d -path '*/hyperscout_collector/serve/rest/static' -prune -exec cp -a --parents {} /map \; -exec rm -r {} + \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -s /own /own

# The root of the image without hyperscout itself: a layer that changes seldom.
FROM build AS root
COPY deploy/docker/collector.requirements.txt /src/deploy/docker/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/ca.pem \
    python3 -m venv --without-pip /opt/hyperscout \
 && /build/bin/pip --python /opt/hyperscout/bin/python install --require-hashes --no-deps --no-compile \
      -r /src/deploy/docker/collector.requirements.txt
COPY deploy/docker/bare.py /src/deploy/docker/
RUN python3 /src/deploy/docker/bare.py /bare --packages /opt/hyperscout

FROM scratch
COPY --from=root /bare/ /
COPY --from=own /own/ /
COPY --from=own /map/ /
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="hyperscout collector" \
      org.opencontainers.image.description="Infers the network topology of a cluster and publishes it as HyperNodes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/hyperscout/bin:/usr/bin:/usr/sbin \
    HOME=/tmp \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 10352 50051 50052 50054 50080
ENTRYPOINT ["hyperscout"]
CMD ["collector"]
