# fish completion for stile(1)

set -l commands run serve check explain test log ca doctor export sandbox credentials status help
set -l events request.start request.end request.deny tunnel.start tunnel.end tunnel.deny \
    dns.deny proxy.start proxy.stop policy.load policy.reject sandbox.new sandbox.end

complete -c stile -f
complete -c stile -n "not __fish_seen_subcommand_from $commands" -l version -d 'Print the version'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -l help -d 'Print the subcommands'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a run -d 'Run a command whose only way out is the allowlist'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a serve -d 'The daemon'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a check -d 'Every fault of a configuration'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a explain -d 'What would be decided, and why'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a test -d "Run the policies' own tests"
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a log -d 'Read and filter the audit log'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a ca -d 'The interception CA'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a doctor -d 'Try each client that is installed, or each way out, from inside'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a export -d 'Copy what is named out of a workspace, or nothing'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a sandbox -d 'Tokens by which a running stile tells sandboxes apart'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a credentials -d 'The credentials of a running stile'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a status -d 'How a running stile is'
complete -c stile -n "not __fish_seen_subcommand_from $commands" -a help -d 'Help on a command'

for command in run serve check explain test ca doctor sandbox credentials status
    complete -c stile -n "__fish_seen_subcommand_from $command" -s c -r -F -d 'The configuration'
end

complete -c stile -n '__fish_seen_subcommand_from run' -l allow -x -d 'One more allow rule'
complete -c stile -n '__fish_seen_subcommand_from run' -l workspace -x -a '(__fish_complete_directories)' -d 'Where the command starts, and may write'
complete -c stile -n '__fish_seen_subcommand_from run' -l timeout -x -d 'Ends the command after that time'
complete -c stile -n '__fish_seen_subcommand_from run' -l memory -x -d 'What all of it may use together'
complete -c stile -n '__fish_seen_subcommand_from run' -l cpus -x -d 'Processors it may use'
complete -c stile -n '__fish_seen_subcommand_from run' -l pids -x -d 'Processes and threads it may have'
complete -c stile -n '__fish_seen_subcommand_from run' -l file-size -x -d 'What a file may grow to'
complete -c stile -n '__fish_seen_subcommand_from run' -l hide -r -F -d 'Not to be seen inside'
complete -c stile -n '__fish_seen_subcommand_from run' -l show -r -F -d 'To be seen inside, read-only'
complete -c stile -n '__fish_seen_subcommand_from run' -l env -x -a '(set -nx)' -d 'Pass a variable on, or set it'
complete -c stile -n '__fish_seen_subcommand_from run' -l log -r -F -d 'Where the audit log goes'
complete -c stile -n '__fish_seen_subcommand_from run explain' -l policy -x -d 'Which policy, when there are several'
complete -c stile -n '__fish_seen_subcommand_from run' -l export -x -d 'What to copy out of the workspace'
complete -c stile -n '__fish_seen_subcommand_from run export' -l to -r -F -d 'A folder that is not there yet'
complete -c stile -n '__fish_seen_subcommand_from export' -l from -x -a '(__fish_complete_directories)' -d 'The workspace'
complete -c stile -n '__fish_seen_subcommand_from export' -l max-files -x -d 'More is a fault'
complete -c stile -n '__fish_seen_subcommand_from export' -l max-bytes -x -d 'Of all files'
complete -c stile -n '__fish_seen_subcommand_from run' -a '(__fish_complete_subcommand --fcs-skip=2)'

complete -c stile -n '__fish_seen_subcommand_from check' -F
complete -c stile -n '__fish_seen_subcommand_from explain' -a 'GET HEAD POST PUT PATCH DELETE OPTIONS CONNECT'

complete -c stile -n '__fish_seen_subcommand_from log' -F
complete -c stile -n '__fish_seen_subcommand_from log' -s f -d 'Go on as the file grows'
complete -c stile -n '__fish_seen_subcommand_from log' -l event -x -a "$events" -d 'Only this event'
complete -c stile -n '__fish_seen_subcommand_from log' -l host -x -d 'Only this host'
complete -c stile -n '__fish_seen_subcommand_from log' -l reason -x -d 'Only this reason'
complete -c stile -n '__fish_seen_subcommand_from log' -l decision -x -a 'allow deny' -d 'Allow or deny'
complete -c stile -n '__fish_seen_subcommand_from log' -l since -x -d 'Only records from this time on'
complete -c stile -n '__fish_seen_subcommand_from log' -l json -d 'The lines themselves'

complete -c stile -n '__fish_seen_subcommand_from ca' -a 'show bundle env rotate'
complete -c stile -n '__fish_seen_subcommand_from ca' -s o -r -F -d 'Where the bundle goes'
complete -c stile -n '__fish_seen_subcommand_from ca' -l java -d 'A trust store for Java'
complete -c stile -n '__fish_seen_subcommand_from ca' -l dir -x -a '(__fish_complete_directories)' -d 'The folder of all forms'
complete -c stile -n '__fish_seen_subcommand_from ca' -l proxy -x -d 'Where the client finds the proxy'
complete -c stile -n '__fish_seen_subcommand_from ca' -l export -d 'For a shell'

complete -c stile -n '__fish_seen_subcommand_from doctor' -l escape -d 'Try the ways out instead'
complete -c stile -n '__fish_seen_subcommand_from doctor' -l reach -x -d 'Where somebody listens outside'
complete -c stile -n '__fish_seen_subcommand_from doctor' -l resolve -x -d 'A name that is known outside'
complete -c stile -n '__fish_seen_subcommand_from doctor' -l workspace -x -a '(__fish_complete_directories)' -d 'Where the sandbox may write'
complete -c stile -n '__fish_seen_subcommand_from doctor' -l way -x -d 'Only this way'
complete -c stile -n '__fish_seen_subcommand_from doctor' -l but -x -d 'A way that may be open'
complete -c stile -n '__fish_seen_subcommand_from doctor' -l json -d 'An object a line'
complete -c stile -n '__fish_seen_subcommand_from doctor' -l allowed -x -d 'What must be answered'
complete -c stile -n '__fish_seen_subcommand_from doctor' -l denied -x -d 'What must be refused'
complete -c stile -n '__fish_seen_subcommand_from doctor' -l client -x -a 'curl wget git pip node npm go cargo java deno bun apt' -d 'Only this one'

complete -c stile -n '__fish_seen_subcommand_from sandbox' -a 'new list revoke'
complete -c stile -n '__fish_seen_subcommand_from sandbox credentials status' -l socket -r -F -d 'The admin socket itself'
complete -c stile -n '__fish_seen_subcommand_from sandbox' -l policy -x -d 'What is allowed'
complete -c stile -n '__fish_seen_subcommand_from sandbox' -l ttl -x -d 'How long it lives'
complete -c stile -n '__fish_seen_subcommand_from sandbox' -l name -x -d 'What the log calls it'
complete -c stile -n '__fish_seen_subcommand_from sandbox' -l listener -x -d 'Where it is good'
complete -c stile -n '__fish_seen_subcommand_from sandbox' -l proxy -x -d 'Where the sandbox finds the listener'
complete -c stile -n '__fish_seen_subcommand_from sandbox credentials status' -l json -d 'The answer itself'

complete -c stile -n '__fish_seen_subcommand_from help' -a "$commands yaml"
