//! The commands that ask a gateway: the one that runs, or one in this process.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use pegboard::telemetry::Telemetry;

use super::schema::What;
use super::serve::told;
use super::{batch, call, chain, logs, ls, output, schema, sessions, status, tools, trace};
use crate::cli::question::terminal;
use crate::cli::{Failure, Globals};
use crate::desk::{Desk, Need};

/// A gateway that is told how long a call may take says more of what became of it than whoever gives up on it.
const GRACE: Duration = Duration::from_secs(1);

/// What is asked.
#[derive(Subcommand)]
pub(crate) enum Asking {
    /// Tell how the gateway is that runs
    Status(status::Status),
    /// List toolboxes, servers and tools, and how they are
    Ls(ls::Ls),
    /// Find tools, and show how they are called
    Tools(tools::Tools),
    /// Call a tool, and print its answer
    Call(call::CallTool),
    /// List, check and run chains of tools
    Chain(chain::Chain),
    /// Make many calls: one on each line of a file, answered as they end
    Batch(batch::Batch),
    /// Read back answers that were too large to hand over
    Output(output::Output),
    /// Show what a call did, and when
    Trace(trace::Trace),
    /// Tell who called what
    Sessions(sessions::Sessions),
    /// Print what servers said
    Logs(logs::Logs),
    /// Print the JSON Schema of a configuration file, of a tool, or of the tools of the gateway itself
    Schema(schema::Schema),
}

impl Asking {
    /// Asks, until there is an answer or somebody does not want to wait.
    pub(crate) async fn run(self, globals: &Globals, telemetry: &Telemetry) -> Result<ExitCode, Failure> {
        let asker = Asker { globals, telemetry, grace: Duration::ZERO };
        match self {
            Self::Batch(batch) => asker.ask(Need::Tools, async |desk| batch.ask(globals, desk).await).await,
            Self::Chain(chain) => asker.ask(Need::Tools, async |desk| chain.ask(globals, desk).await).await,
            Self::Logs(logs) => {
                logs::Logs::check(globals)?;
                logs.ended(asker.ask(Need::Running, async |desk| logs.ask(globals, desk).await).await)
            }
            Self::Output(output) => {
                asker.ask(Need::Records, async |desk| output.ask(globals, desk).await).await
            }
            Self::Schema(schema) => match schema.what() {
                What::Config => Ok(schema::tell_config(globals)),
                What::Meta => unless_told(schema::tell_meta(globals, telemetry)).await,
                What::Tool(tool) => asker.ask(Need::Tools, async |desk| tool.ask(globals, desk).await).await,
            },
            Self::Sessions(sessions) => {
                asker.ask(Need::Records, async |desk| sessions.ask(globals, desk).await).await
            }
            Self::Trace(trace) => asker.ask(Need::Records, async |desk| trace.ask(globals, desk).await).await,
            Self::Call(call) => {
                Asker { grace: GRACE, ..asker }
                    .ask(Need::Tools, async |desk| call.ask(globals, desk).await)
                    .await
            }
            Self::Ls(mut ls) => match ls.take_source() {
                Some(source) => {
                    let globals = &globals.looking_at(source);
                    let asker = Asker { globals, ..asker };
                    asker.ask(Need::Tools, async |desk| ls.ask(globals, desk).await).await
                }
                None => asker.ask(Need::Tools, async |desk| ls.ask(globals, desk).await).await,
            },
            Self::Status(status) => {
                tokio::select! {
                    done = unless_told(status.run(globals)) => done,
                    failure = globals.out_of_time(Duration::ZERO) => Err(failure),
                }
            }
            Self::Tools(tools) => asker.ask(Need::Tools, async |desk| tools.ask(globals, desk).await).await,
        }
    }
}

/// Whoever asks.
struct Asker<'a> {
    globals: &'a Globals,
    telemetry: &'a Telemetry,
    /// How much longer than it may an answer is waited for.
    grace: Duration,
}

impl Asker<'_> {
    /// Asks a gateway that fits, and ends what was started for it.
    async fn ask(
        &self,
        need: Need,
        ask: impl AsyncFnOnce(&Desk) -> Result<ExitCode, Failure>,
    ) -> Result<ExitCode, Failure> {
        let mut out_of_time = pin!(self.globals.out_of_time(self.grace));
        let desk = tokio::select! {
            desk = unless_told(Desk::open(self.globals, self.telemetry, need)) => desk?,
            failure = &mut out_of_time => return Err(failure),
        };
        let done = tokio::select! {
            done = unless_told(ask(&desk)) => done,
            failure = out_of_time => Err(failure),
        };
        terminal::restore();
        // Who says so again does not want to wait.
        tokio::select! {
            () = desk.close() => {}
            () = told() => {}
        }
        done
    }
}

/// Does something, unless somebody wants this program to end.
async fn unless_told<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        done = work => done,
        () = told() => Err(Failure::interrupted()),
    }
}
