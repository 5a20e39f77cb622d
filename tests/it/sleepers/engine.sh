#!/bin/sh
# A pretended engine. A container is a file named as its service: its image and its state. What was changed stands in `asked`;
# `before-VERB` is read before it is done, so that a test may come between, or let it fail.
E='@@'
rel=$(basename "$PWD")

put() { printf '%s %s\n' "$2" "$3" > "$E/containers/$1"; }

print_container() {
    read -r image state < "$E/containers/$1"
    printf '%s{"Id":"%s","Name":"/mythex-%s-1","Image":"%s","RestartCount":0,' "$2" "$1" "$1" "$image"
    printf '"State":{"Status":"%s","ExitCode":0,"StartedAt":"2026-01-01T00:00:00Z","FinishedAt":"%s"},' "$state" "$(date -u +%FT%TZ)"
    printf '"Config":{"Env":[],"StopTimeout":1,"Labels":{"com.docker.compose.service":"%s"}}}' "$1"
}

change() {
    verb=$1
    shift
    # Names of services: no spaces, and each a word of its own.
    # shellcheck disable=SC2046
    [ $# -gt 0 ] || set -- $(ls "$E/containers")
    echo "$verb $*" >> "$E/asked"
    # shellcheck source=/dev/null
    if [ -e "$E/before-$verb" ]; then . "$E/before-$verb"; fi
    for service; do
        read -r image state < "$E/containers/$service"
        case $verb in
            up) put "$service" "sha256:$rel" running ;;
            create) [ "$image" = "sha256:$rel" ] || put "$service" "sha256:$rel" created ;;
            stop) [ "$state" = created ] || put "$service" "$image" exited ;;
        esac
    done
}

case "$1 $2" in
    "ps --all") ls "$E/containers" ;;
    "container inspect")
        shift 2
        comma='['
        for id; do print_container "$id" "$comma"; comma=,; done
        echo ']'
        ;;
    "image inspect")
        shift 2
        comma='['
        for image; do printf '%s{"Id":"%s","RepoDigests":["%s"]}' "$comma" "${image#*@}" "$image"; comma=,; done
        echo ']'
        ;;
    "compose "*)
        while [ $# -gt 0 ]; do
            case $1 in up | create | stop) break ;; esac
            shift
        done
        verb=$1
        while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
        [ $# -eq 0 ] || shift
        change "$verb" "$@"
        ;;
esac
