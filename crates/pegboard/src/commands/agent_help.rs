//! `pegboard agent-help`: instructions for a model that uses this command line.

use std::fmt::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::Cli;
use crate::cli::{CliError, EXIT_CODES, print};

/// Text before the list of commands.
const BEFORE: &str = "\
# pegboard for language models

Pegboard puts the tools of many MCP servers, web services, chains and agents behind one command. Search for a tool, read
its signature, and call it:

    pegboard tools \"create an issue\" --json      # ranked, with signatures
    pegboard schema tool create_issue              # its input schema, if the signature is not enough
    pegboard call create_issue repo=acme/rocket title='It leaks' labels:='[\"bug\"]'

- An address is toolbox/server/tool; any unambiguous suffix works: `create_issue`.
- key=value is converted to the type in the tool's schema; key:=JSON passes JSON; key=@FILE reads a file; '{…}' passes all arguments.
- Results go to standard output, everything else to standard error. With --json, results and errors are JSON documents.
- An unknown name or an invalid argument is rejected before anything runs; the line that starts with help suggests a fix.
- Large outputs are stored: `pegboard output grep HANDLE PATTERN`, `pegboard output cat HANDLE`.
- Run several calls with one JSON object per line ({\"tool\": …, \"arguments\": {…}}): `pegboard batch -`.
- Inspect calls with `pegboard trace last`, `pegboard sessions` and `pegboard logs SERVER`. Find problems with `pegboard doctor`,
  or check a single file with `pegboard validate FILE`.
- Pass --no-input so that no command waits for a prompt.
";

#[expect(clippy::unnecessary_wraps, reason = "commands are alike")]
pub(crate) fn run() -> Result<ExitCode, CliError> {
    let mut text = format!("{BEFORE}\n## Commands\n\n");
    let whole = Cli::command();
    for command in whole.get_subcommands().filter(|command| !command.is_hide_set()) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "- `{}`: {about}", command.get_name());
    }
    let _ = write!(text, "\n{EXIT_CODES}");
    print::text(&text);
    Ok(ExitCode::SUCCESS)
}
