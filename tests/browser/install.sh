#!/bin/sh
# Makes sure that there is a Chromium for the browser tests: the machine's, Debian's, or Playwright's.
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends chromium && exit 0
fi
exec "${PLAYWRIGHT:-playwright}" install chromium
