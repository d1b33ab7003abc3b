# The agent: neither NumPy nor a Kubernetes client. From the repository's root:
#   docker build -f deploy/docker/agent.Dockerfile -t hyperscout/agent:0.1.0 .
#
# scapy (GPLv2) takes LLDP frames apart, in a process of its own; ibnetdiscover (GPLv2 or BSD) sweeps InfiniBand.
#
# The base is pinned by a tag of one Debian point release; its digest could not be looked up where this was written.
# Pin it where you build: --build-arg BASE=debian:12.12-slim@sha256:...
ARG BASE=debian:12.12-slim

FROM ${BASE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-pip python3-venv \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all:
COPY deploy/docker/build.requirements.txt deploy/docker/agent.requirements.txt /src/deploy/docker/
RUN python3 -m venv /build \
 && /build/bin/pip install --require-hashes -r /src/deploy/docker/build.requirements.txt \
 && python3 -m venv --without-pip /opt/hyperscout \
 && /build/bin/pip --python /opt/hyperscout/bin/python install --require-hashes --no-deps \
      -r /src/deploy/docker/agent.requirements.txt
COPY . /src
RUN cd /src \
 && /build/bin/python -m hatchling build -t wheel -d /wheel \
 && /build/bin/pip --python /opt/hyperscout/bin/python install --no-index --no-deps /wheel/*.whl \
 && /opt/hyperscout/bin/python -m compileall -q /opt/hyperscout/lib

# infiniband-diags pulls Perl in for its scripts; the one program that is needed takes its libraries along.
FROM ${BASE} AS infiniband
RUN apt-get update \
 && apt-get install -y --no-install-recommends infiniband-diags \
 && rm -rf /var/lib/apt/lists/* \
 && install -d /out/bin /out/lib \
 && cp /usr/sbin/ibnetdiscover /out/bin/ \
 && cp -L /usr/lib/*-linux-gnu/libibumad.so.3 /usr/lib/*-linux-gnu/libibmad.so.5 \
       /usr/lib/*-linux-gnu/libibnetdisc.so.5 /out/lib/

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="hyperscout agent" \
      org.opencontainers.image.description="Observes how a node is wired: LLDP, InfiniBand" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-only" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The interpreter, without pip and without a compiler. Debian's security updates come with each build.
RUN apt-get update \
 && apt-get upgrade -y \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* /var/log/*
COPY --from=infiniband /out/bin/ /usr/local/bin/
COPY --from=infiniband /out/lib/ /usr/local/lib/
RUN ldconfig
COPY --from=build /opt/hyperscout /opt/hyperscout
ENV PATH=/opt/hyperscout/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# The listener's container runs as root instead, with NET_RAW and nothing else.
USER 10001:10001
EXPOSE 50053
ENTRYPOINT ["hyperscout"]
CMD ["agent"]
