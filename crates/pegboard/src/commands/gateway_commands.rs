//! Commands that use the gateway's API: of a running gateway, or of one in this process.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use pegboard::telemetry::Telemetry;

use super::schema::SchemaCommand;
use super::serve::shutdown_signal;
use super::{batch, call, chain, logs, ls, output, reload, schema, sessions, status, stop, tools, trace};
use crate::api_client::{ApiClient, GatewayNeed};
use crate::cli::prompt::terminal;
use crate::cli::{CliError, Globals};

/// Extra time for calls: the gateway enforces the timeout itself and reports more detail than the client
/// could.
const GRACE: Duration = Duration::from_secs(1);

/// Commands that use the gateway's API.
#[derive(Subcommand)]
pub(crate) enum GatewayCommand {
    /// Show the status of the running gateway
    Status(status::StatusArgs),
    /// Reload the configuration of the running gateway, and approve the programs that wait
    Reload(reload::ReloadArgs),
    /// Stop the running gateway
    Stop(stop::StopArgs),
    /// Restart the running gateway with the configuration as it is now, or one of its servers
    Restart(stop::RestartArgs),
    /// List toolboxes, servers and tools with their state
    Ls(ls::LsArgs),
    /// Search for tools and show their signatures
    Tools(tools::ToolsArgs),
    /// Call a tool and print its answer
    Call(call::CallArgs),
    /// List, check and run chains of tools
    Chain(chain::ChainArgs),
    /// Run many calls, one per line of a file
    Batch(batch::BatchArgs),
    /// Read outputs that were too large to return
    Output(output::OutputArgs),
    /// Show what a call did, and when
    Trace(trace::TraceArgs),
    /// List sessions and their calls
    Sessions(sessions::SessionsArgs),
    /// Show server logs
    Logs(logs::LogsArgs),
    /// Print the JSON Schema of the configuration file, of a tool, or of the gateway's own tools
    Schema(schema::SchemaArgs),
}

impl GatewayCommand {
    /// Runs the command until it completes, times out or is interrupted.
    pub(crate) async fn run(self, globals: &Globals, telemetry: &Telemetry) -> Result<ExitCode, CliError> {
        let runner = GatewayRunner { globals, telemetry, grace: Duration::ZERO };
        // These report a timeout themselves.
        let patient = GatewayRunner { grace: GRACE, ..runner };
        match self {
            Self::Batch(batch) => {
                runner.run(GatewayNeed::NamedTools, async |api| batch.run(globals, api).await).await
            }
            Self::Chain(chain) => {
                runner.run(GatewayNeed::NamedTools, async |api| chain.run(globals, api).await).await
            }
            Self::Logs(logs) => {
                logs::LogsArgs::check(globals)?;
                let done = runner.run(GatewayNeed::Running, async |api| logs.run(globals, api).await).await;
                logs.map_result(done.or_else(|failure| logs.print_last(globals, failure)))
            }
            Self::Output(output) => {
                runner.run(GatewayNeed::Records, async |api| output.run(globals, api).await).await
            }
            Self::Schema(schema) => runner.print_schema(schema).await,
            Self::Reload(reload) => {
                runner.run(GatewayNeed::Running, async |api| reload.run(globals, api).await).await
            }
            Self::Restart(restart) => {
                runner.run(GatewayNeed::Running, async |api| restart.run(globals, api).await).await
            }
            Self::Stop(stop) => {
                runner.run(GatewayNeed::Running, async |api| stop.run(globals, api).await).await
            }
            Self::Sessions(sessions) => {
                runner.run(GatewayNeed::Records, async |api| sessions.run(globals, api).await).await
            }
            Self::Trace(trace) => {
                runner.run(GatewayNeed::Records, async |api| trace.run(globals, api).await).await
            }
            Self::Call(call) => {
                patient.run(GatewayNeed::NamedTools, async |api| call.run(globals, api).await).await
            }
            Self::Ls(mut ls) => match ls.take_source() {
                Some(source) => {
                    let globals = &globals.with_only_config(source);
                    let patient = GatewayRunner { globals, ..patient };
                    patient.run(GatewayNeed::Tools, async |api| ls.run(globals, api).await).await
                }
                None => patient.run(GatewayNeed::Tools, async |api| ls.run(globals, api).await).await,
            },
            Self::Status(status) => {
                tokio::select! {
                    done = or_interrupted(status.run(globals)) => done,
                    failure = globals.deadline(Duration::ZERO) => Err(failure),
                }
            }
            Self::Tools(tools) => {
                patient.run(GatewayNeed::Tools, async |api| tools.run(globals, api).await).await
            }
        }
    }
}

/// Runs a command with an API client.
#[derive(Clone, Copy)]
struct GatewayRunner<'a> {
    globals: &'a Globals,
    telemetry: &'a Telemetry,
    /// Extra time beyond `--timeout`.
    grace: Duration,
}

impl GatewayRunner<'_> {
    async fn print_schema(&self, schema: schema::SchemaArgs) -> Result<ExitCode, CliError> {
        match schema.command() {
            SchemaCommand::Config => Ok(schema::print_config_schema(self.globals)),
            SchemaCommand::Meta => {
                or_interrupted(schema::print_meta_tools(self.globals, self.telemetry)).await
            }
            SchemaCommand::Tool(tool) => {
                self.run(GatewayNeed::NamedTools, async |api| tool.run(self.globals, api).await).await
            }
        }
    }

    /// Opens an API client, runs `work` with it, and closes it.
    async fn run(
        &self,
        need: GatewayNeed,
        work: impl AsyncFnOnce(&ApiClient) -> Result<ExitCode, CliError>,
    ) -> Result<ExitCode, CliError> {
        let mut deadline = pin!(self.globals.deadline(self.grace));
        let api = tokio::select! {
            api = or_interrupted(ApiClient::open(self.globals, self.telemetry, need)) => api?,
            failure = &mut deadline => return Err(failure),
        };
        let done = tokio::select! {
            done = or_interrupted(work(&api)) => done,
            failure = deadline => Err(failure),
        };
        terminal::restore();
        // A second signal skips the shutdown.
        tokio::select! {
            () = api.close() => {}
            () = shutdown_signal() => {}
        }
        done
    }
}

/// Runs `work`; a shutdown signal turns into an error.
async fn or_interrupted<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    tokio::select! {
        done = work => done,
        () = shutdown_signal() => Err(CliError::interrupted()),
    }
}
