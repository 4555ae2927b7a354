//! `pegboard agent-help`: instructions for a model that uses this command line.

use std::fmt::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::Cli;
use crate::cli::{CliError, EXIT_CODES, print};

/// Text before the list of commands.
const BEFORE: &str = "\
# pegboard, for a model at a shell

Pegboard has tools of many MCP servers, web services, chains and agents behind one command. Find a tool, look at its
signature, call it:

    pegboard tools \"create an issue\" --json      # ranked, with signatures
    pegboard schema tool create_issue              # its input schema, if the signature leaves something open
    pegboard call create_issue repo=acme/rocket title='It leaks' labels:='[\"bug\"]'

- Addresses are toolbox/server/tool; any unique end of one will do: `create_issue`.
- key=value is read as the tool's schema says; key:=JSON passes JSON; key=@FILE reads a file; -- '{…}' passes everything.
- Results are on standard output, everything else on standard error. --json gives documents, also for failures.
- A wrong name or argument is refused before anything runs, with the fix in the line that begins with help.
- An answer too large to hand over is stored: `pegboard output grep HANDLE PATTERN`, `pegboard output cat HANDLE`.
- Several calls at once: one JSON object a line ({\"tool\": …, \"arguments\": {…}}) into `pegboard batch -`.
- What happened: `pegboard trace last`, `pegboard sessions`, `pegboard logs SERVER`. What is wrong: `pegboard doctor`, and with a file
  alone: `pegboard validate FILE`.
- Never wait for a question: say --no-input.
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
