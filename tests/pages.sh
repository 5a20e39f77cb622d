#!/usr/bin/env bash
# Why: completions that a shell refuses and man pages that break are noticed by nobody who builds. Each shell loads its own and completes with it;
# every page is set by groff, which must have nothing to say.
#
# pages.sh HANDOVER
set -euo pipefail
handover=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for shell in bash zsh fish; do "$handover" completions $shell > "_$shell"; done

# shellcheck disable=SC2016
found=$(bash -c 'source ./_bash; COMP_WORDS=(handover reh) COMP_CWORD=1; _handover handover reh handover; echo "${COMPREPLY[*]}"')
[ "$found" = rehearse ] || { echo "bash completes to \`$found\`"; exit 1; }
zsh -f -c 'autoload -U compinit && compinit -u -D; source ./_zsh; whence -w _handover' | grep -q function
found=$(fish -N -c 'source ./_fish; complete -C "handover reh"' | cut -f1)
[ "$found" = rehearse ] || { echo "fish completes to \`$found\`"; exit 1; }

"$handover" man pages -q
for command in $("$handover" --help | awk '/^Commands:/{on=1;next} /^[A-Z]/{on=0} on&&/^  [a-z]/{print $1}' | grep -v '^help$'); do
  [ -f "pages/handover-$command.1" ] || { echo "no man page of $command"; exit 1; }
done
for page in pages/*.1; do
  said=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
  [ -z "$said" ] || { echo "$page: $said"; exit 1; }
done
[ -z "$("$handover" man | groff -man -Tutf8 -ww -z 2>&1)" ]
"$handover" --version | grep -Eq '^commit ([0-9a-f]{12}|unknown|in development)$'
echo "completions of three shells, $(find pages -name '*.1' | wc -l) man pages"
