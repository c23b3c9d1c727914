function __nodetracker_manage
  set -l typed (commandline -opc) (commandline -ct)
  nodetracker-manage completion words -- $typed[2..-1] 2>/dev/null
end
complete -c nodetracker-manage -f -a '(__nodetracker_manage)'
