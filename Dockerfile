# syntax=docker/dockerfile:1
# One image for each program: --build-arg COMPONENT=admission or COMPONENT=reconciler. VERSION and REVISION are what the
# program says that it is. Built for several architectures (--platform), it is compiled on that of the builder.
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /source
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG COMPONENT
ARG VERSION=development
ARG REVISION=unknown
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    make release-binaries PROGRAMS="stageset-${COMPONENT:?admission or reconciler}" RELEASE=/release \
    VERSION="$VERSION" REVISION="$REVISION" GOOS="$TARGETOS" GOARCH="$TARGETARCH" && \
    mv "/release/stageset-$COMPONENT" /release/program

# Certificates of public authorities, time zones and /etc/passwd; no shell.
FROM gcr.io/distroless/static-debian12:nonroot
ARG COMPONENT
ARG VERSION=development
ARG REVISION=unknown
LABEL org.opencontainers.image.title="stageset-$COMPONENT" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="https://github.com/stageset/stageset" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /release/program /program
# As a number, so that a kubelet can see that it is not root.
USER 65532:65532
ENTRYPOINT ["/program"]
