//! The claim of a gateway to its configuration is refused.

use std::process::ExitCode;

use crate::cli::prompt::terminal::Terminal;
use crate::cli::prompt::{Echo, Prompter};
use crate::cli::{CliError, ExitReason, Globals, print};

/// Reason why a gateway has no claim to its configuration.
#[derive(Debug)]
pub(super) enum ClaimError {
    /// Another gateway serves it.
    #[cfg_attr(not(unix), expect(dead_code, reason = "every gateway is for its own clients there"))]
    InUse(RunningGateway),
    Failed(CliError),
}

/// A gateway that serves the same configuration.
#[derive(Debug)]
pub(super) struct RunningGateway {
    pub(super) pid: u64,
    /// Configuration files, for messages.
    pub(super) files: String,
    /// URLs of its endpoint.
    pub(super) addresses: Vec<String>,
}

impl From<CliError> for ClaimError {
    fn from(failure: CliError) -> Self {
        Self::Failed(failure)
    }
}

impl RunningGateway {
    /// Offers to use this gateway instead of another one. Without a terminal it is an error.
    pub(super) fn offer(&self, globals: &Globals) -> Result<ExitCode, CliError> {
        let Some(mut terminal) = Terminal::detect().filter(|_| !globals.no_input) else {
            return Err(self.error());
        };
        terminal.print(&self.message());
        let answer = terminal.read_line("Use it? [Y/n] ", Echo::Shown).unwrap_or_else(|| "n".to_owned());
        if !matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes") {
            return Err(self.error());
        }
        for address in &self.addresses {
            print::error_line(&format!("Ready  MCP {address}"));
        }
        print::error_line("See pegboard status and pegboard logs; pegboard stop ends it");
        Ok(ExitCode::SUCCESS)
    }

    fn message(&self) -> String {
        let Self { pid, files, addresses } = self;
        format!("a gateway (pid {pid}) already serves {files} at {}", addresses.join(", "))
    }

    fn error(&self) -> CliError {
        CliError::new(ExitReason::Usage, "already_running", self.message()).hint(
            "connect clients to that address, end it with `pegboard stop`, or start another with --no-daemon",
        )
    }
}
