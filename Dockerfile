# Two images: "gantry" for every component, and "pipeline" for Spark's jobs, which needs Java. Works with the legacy
# builder too: no BuildKit syntax. That builder makes every stage above the target, so the small image comes first.
#
#   docker build --target gantry -t gantry:dev .
#   docker build --target pipeline -t gantry-pipeline:dev .
#
# Build arguments: BASE_IMAGE (any Debian-like image with apt), EXTRA_CA (a PEM file in the build context that pip
# should trust besides the system's; empty for none).
ARG BASE_IMAGE=debian:trixie-slim

FROM $BASE_IMAGE AS build
ARG EXTRA_CA=""
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends python3 python3-venv ca-certificates \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1
# LICENSE only stands in for the authority that is not there: COPY takes no empty name.
COPY constraints.txt pyproject.toml ${EXTRA_CA:-LICENSE} ./
RUN if [ -n "$EXTRA_CA" ]; then cat "$(basename "$EXTRA_CA")" >> "$PIP_CERT"; fi \
    && python3 -m venv /opt/build \
    && /opt/build/bin/pip install -c constraints.txt 'build>=1.2' 'grpcio-tools>=1.71' 'hatchling>=1.27' \
    && python3 -m venv --without-pip /opt/gantry

# What is not ours first, in a layer of its own: a changed source does not fetch it again.
FROM build AS build-gantry
COPY .ci/requirements .ci/
RUN .ci/requirements controller broker operator proxy > /tmp/requirements.txt \
    && /opt/build/bin/pip --python /opt/gantry/bin/python install -c constraints.txt -r /tmp/requirements.txt
COPY . .
RUN /opt/build/bin/python -m build --no-isolation --wheel --outdir /dist . \
    && /opt/build/bin/pip --python /opt/gantry/bin/python install --no-deps /dist/*.whl \
    && find /opt/gantry -name tests -type d -path '*/site-packages/*' -prune -exec rm -rf {} + \
    && find /opt/gantry -path '*/kubernetes/*client/*' -path '*/__pycache__/*' \( -path '*/api/*' -o -path '*/models/*' \) ! -name '__init__.*' -delete

FROM $BASE_IMAGE AS gantry
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* /usr/share/doc /usr/share/man \
    && groupadd --gid 10001 gantry \
    && useradd --uid 10001 --gid gantry --no-create-home --home-dir /var/lib/gantry --shell /usr/sbin/nologin gantry \
    && install -d -o gantry -g root -m 2775 /var/lib/gantry
COPY --from=build-gantry /opt/gantry /opt/gantry
# HOME: a user that the platform assigns has none, and group root, which may write there without a volume.
# PYTHONSAFEPATH: the working directory is never importable. Bytecode was written at install, for a start in half a
# second, and removed where nobody imports it (a class for each kind and verb of Kubernetes); it is not written later:
# the root file system is read-only.
ENV PATH=/opt/gantry/bin:$PATH HOME=/var/lib/gantry PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/gantry
ENTRYPOINT ["gantry"]
CMD ["--help"]

FROM build AS build-pipeline
COPY .ci/requirements .ci/
RUN .ci/requirements pipeline > /tmp/requirements.txt \
    && /opt/build/bin/pip --python /opt/gantry/bin/python install --no-cache-dir -c constraints.txt -r /tmp/requirements.txt \
    && find /opt/gantry -name tests -type d -path '*/site-packages/*' -prune -exec rm -rf {} + \
    && rm -rf /opt/gantry/lib/python3*/site-packages/pyspark/examples
COPY --from=build-gantry /dist /dist
RUN /opt/build/bin/pip --python /opt/gantry/bin/python install --no-deps /dist/*.whl

FROM $BASE_IMAGE AS pipeline
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 default-jre-headless libnss-wrapper \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* /usr/share/doc /usr/share/man \
    && groupadd --gid 10001 gantry \
    && useradd --uid 10001 --gid gantry --no-create-home --home-dir /tmp --shell /usr/sbin/nologin gantry
COPY --from=build-pipeline /opt/gantry /opt/gantry
# The root file system is read-only; what Spark spills and its workers write goes to /tmp, a volume.
ENV PATH=/opt/gantry/bin:$PATH HOME=/tmp PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 LANG=C.UTF-8
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["gantry"]
CMD ["pipeline", "doctor"]
