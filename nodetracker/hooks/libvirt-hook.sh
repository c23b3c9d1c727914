#!/bin/sh
# nodetracker-admission
# Asks nodetracker's agent whether a guest may start. Written by "nodetracker-manage admission
# install --driver libvirt", which writes it again; "admission remove" or rm takes it out.
# Directories made: @DIRECTORIES@
when_unavailable=@WHEN_UNAVAILABLE@
socket=@SOCKET@
program=@PROGRAM@
python=@PYTHON@

# A failure at any other operation could stop a guest that runs.
case "$2 $3" in
'prepare begin' | 'migrate begin' | 'restore begin' | 'release end') ;;
'start begin') # what libvirt took from the pool of a network is not known before
    document=$(cat)
    case $document in
    *"<interface type='hostdev'"* | *"<interface type='direct'"*) ;;
    *) exit 0 ;;
    esac
    exec <<END
$document
END
    ;;
*) exit 0 ;;
esac
[ -x "$python" ] && [ -f "$program" ] || exit 0
# Standard output would replace the guest's XML.
timeout --foreground -s KILL 2 "$python" -I -S "$program" "$socket" "$2" >/dev/null
status=$?
case "$2 $status" in
'release '* | *' 0' | *' 126' | *' 127') exit 0 ;; # 126, 127: the program is gone
*' 77') exit 1 ;;
esac
[ "$when_unavailable" = refuse ] || exit 0
echo "nodetracker: no answer from the agent (status $status), and without one no guest starts:" \
    "see nodetracker-manage admission show" >&2
exit 1
