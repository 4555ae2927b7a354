//! `pegboard serve --stdio` as a client of the gateway that serves its configuration.
//!
//! Messages pass as they are: bytes in, bytes out. Only their ids are looked at, so that every request is answered if
//! the gateway goes away, and the session continues on the next one.

use std::cell::{Cell, RefCell};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use pegboard::settings::DaemonMode;
use pegboard::telemetry::write_stderr;
use pegboard::wire::MAX_MESSAGE_BYTES;
use pegboard::wire::stdio::{standard_input, standard_output};
use tokio::time::{self, Instant};

use super::attachment::{AttachRequest, VariableDigests};
use super::gateway_lock::{LockAttempt, LockEnd};
use super::log_file::LogFile;
use super::shutdown::ShutdownSignals;
use super::stdout_closed::stdout_closed;
use super::{ServeArgs, background, control};
use crate::cli::format::plural;
use crate::cli::{CliError, Globals};
use crate::paths::{self, ConfigSelection};
use connect::{ConnectError, GatewayConnection, GatewayLocation};
use exchange::ExchangeLog;
use lines::LineReader;
use relay::{ClientStreams, RelayEnd};

mod connect;
mod exchange;
mod lines;
mod relay;

/// Minimum life of a gateway after which a new one is started at once, not with the next message.
const MIN_LIFE: Duration = Duration::from_secs(2);
/// Maximum number of gateways in a row with a shorter life.
const MAX_SHORT_LIVES: u32 = 3;
/// Number of and interval between checks of the lock of a gateway that has gone.
const N_LOCK_CHECKS: usize = 10;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);
/// Interval between checks for a gateway that someone else starts.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Serves the client through the gateway of its configuration. Returns `None` if it needs a gateway of its own.
pub(super) fn run(
    serve: &ServeArgs,
    globals: &Globals,
    selection: &ConfigSelection,
) -> Result<Option<ExitCode>, CliError> {
    let state = paths::state_dir(globals.state.as_deref());
    let Some(state) = state.filter(|_| !globals.no_daemon && has_client()) else { return Ok(None) };
    let (configuration, variables) = selection.inspect_variables()?;
    let is_empty = configuration.sources.is_empty() && configuration.toolboxes.is_empty();
    if is_empty || configuration.settings.daemon == DaemonMode::Off {
        return Ok(None);
    }
    let identity = selection.identity();
    let location = GatewayLocation {
        folder: paths::socket_dir(&state),
        log: LogFile::new(&state, &identity),
        request: AttachRequest {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            identity,
            profile: serve.profile.clone(),
            pid: std::process::id(),
            program: background::client_process(),
            variables: VariableDigests::new(variables),
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::system(format!("cannot start the async runtime: {error}")))?;
    let served = runtime.block_on(async {
        let passing = PassThrough {
            serve,
            globals,
            selection,
            location,
            log: RefCell::default(),
            n_short_lives: Cell::default(),
        };
        match passing.connect(UntrustedFiles::Ask).await {
            Ok(connection) => passing.serve(connection).await.map(Some),
            Err(ConnectError::Failed(failure)) => Err(failure),
            Err(ConnectError::Unshared(reason)) => {
                write_stderr(&format!("warning: this client has a gateway of its own: {reason}"));
                Ok(None)
            }
        }
    });
    // A blocking read of standard input may never end.
    runtime.shutdown_background();
    served
}

/// Returns `false` if standard input is the null device, so that there is no client.
fn has_client() -> bool {
    let null = rustix::fs::stat("/dev/null").map(|file| file.st_rdev);
    let input = rustix::fs::fstat(rustix::stdio::stdin()).map(|file| file.st_rdev);
    input.is_ok_and(|input| null != Ok(input))
}

/// Treatment of project files that are not trusted when a gateway is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UntrustedFiles {
    /// The user is asked, if there is a terminal.
    Ask,
    /// They are rejected.
    Reject,
}

/// A client over stdio.
struct PassThrough<'a> {
    serve: &'a ServeArgs,
    globals: &'a Globals,
    selection: &'a ConfigSelection,
    location: GatewayLocation,
    log: RefCell<ExchangeLog>,
    /// Number of gateways in a row that exited soon after this client connected.
    n_short_lives: Cell<u32>,
}

impl PassThrough<'_> {
    /// Connects to the gateway, or starts one.
    async fn connect(&self, rule: UntrustedFiles) -> Result<GatewayConnection, ConnectError> {
        let connection = self.location.connect(|lock| {
            let admitted = match rule {
                UntrustedFiles::Ask => self
                    .selection
                    .inspect_trusted()
                    .map(|configuration| paths::print_problems(&configuration.problems)),
                UntrustedFiles::Reject => control::check_start(self.selection),
            };
            admitted.map_err(ConnectError::Failed)?;
            let started = background::start(self.serve, self.globals, lock, &self.location.log);
            started
                .map_err(|error| ConnectError::Unshared(format!("cannot start in the background: {error}")))
        });
        let connection = connection.await?;
        self.report_differences(&connection);
        Ok(connection)
    }

    /// Tells how the gateway differs from one that this client would have started.
    fn report_differences(&self, connection: &GatewayConnection) {
        let (reply, own) = (&connection.reply, &self.location.request.version);
        let pid = reply.pid;
        if reply.version != *own {
            write_stderr(&format!(
                "warning: the gateway (pid {pid}) is Pegboard {}, this is {own}; `pegboard stop` ends it, and the \
                 next request starts this version",
                reply.version
            ));
        }
        if !reply.differing.is_empty() {
            write_stderr(&format!(
                "warning: the gateway (pid {pid}) has other values for {}: it has the environment of the process that \
                 started it; `pegboard stop` ends it, and the next client starts one with its own",
                reply.differing.join(", ")
            ));
        }
    }

    /// Passes messages through until the client leaves, on as many gateways as it takes.
    async fn serve(&self, mut connection: GatewayConnection) -> Result<ExitCode, CliError> {
        let input = LineReader::new(standard_input(), MAX_MESSAGE_BYTES);
        let mut client = ClientStreams { input, output: standard_output() };
        let mut signals = ShutdownSignals::listen();
        let passing = async {
            loop {
                let (pid, begun) = (connection.reply.pid, Instant::now());
                if client.relay(&self.log, connection, &mut signals).await? == RelayEnd::ClientLeft {
                    return Ok::<_, io::Error>(());
                }
                let next = tokio::select! {
                    next = self.reconnect(&mut client, pid, begun) => next?,
                    () = signals.next() => None,
                };
                match next {
                    Some(next) => connection = next,
                    None => return Ok(()),
                }
            }
        };
        tokio::select! {
            // An error is that of standard output: the client has left.
            _ended = passing => {}
            () = stdout_closed() => {}
        }
        Ok::<_, CliError>(ExitCode::SUCCESS)
    }

    /// Tells the client what was lost with a gateway, and connects to the next one: at once if the last one did not
    /// shut down, or else when it is needed or started by someone else. Returns `None` if the client leaves.
    async fn reconnect(
        &self,
        client: &mut ClientStreams,
        pid: u32,
        begun: Instant,
    ) -> io::Result<Option<GatewayConnection>> {
        let has_crashed = self.has_crashed(pid).await;
        let reason =
            if has_crashed { "it was killed or crashed" } else { "it was stopped, restarted or replaced" };
        let n_lost = self.log.borrow().n_in_flight() as u64;
        // The gateway may have gone before they were written.
        let rejected = self.log.borrow_mut().rejections();
        client.tell(&rejected).await?;
        let lost = self.log.borrow_mut().lost(reason);
        client.tell(&lost).await?;
        let lost = if n_lost > 0 { format!("; {} lost", plural(n_lost, "request")) } else { String::new() };
        write_stderr(&format!("The gateway (pid {pid}) has gone: {reason}{lost}"));
        let n_short = if begun.elapsed() < MIN_LIFE { self.n_short_lives.get() + 1 } else { 0 };
        self.n_short_lives.set(n_short);
        if n_short > MAX_SHORT_LIVES {
            self.reject_requests(client, "gateways exit right after their start").await?;
            // One that runs, but does not keep the connection, counts as started by another client.
            time::sleep(MIN_LIFE).await;
        }
        let mut is_wanted = n_short == 0 && has_crashed || self.log.borrow().is_handshaking();
        let mut refused_by = None;
        loop {
            if !is_wanted && !self.wait_for_need(client, refused_by).await {
                return Ok(None);
            }
            match self.connect(UntrustedFiles::Reject).await {
                Ok(connection) => {
                    let pid = connection.reply.pid;
                    write_stderr(&format!(
                        "The session continues on another gateway (pid {pid}); open toolboxes again"
                    ));
                    let changes = self.log.borrow().list_changes();
                    client.tell(&changes).await?;
                    return Ok(Some(connection));
                }
                Err(ConnectError::Failed(failure)) => {
                    self.reject_requests(client, &failure.summary()).await?;
                }
                Err(ConnectError::Unshared(reason)) => self.reject_requests(client, &reason).await?,
            }
            is_wanted = false;
            refused_by = self.running();
        }
    }

    /// Returns `true` if a gateway did not shut down. The system closes the files of a killed process one by one.
    async fn has_crashed(&self, pid: u32) -> bool {
        let GatewayLocation { folder, request, .. } = &self.location;
        for _ in 0..N_LOCK_CHECKS {
            match LockEnd::of(folder, &request.identity, pid) {
                LockEnd::Abandoned => return true,
                LockEnd::GivenUp => return false,
                LockEnd::Held => time::sleep(LOCK_INTERVAL).await,
            }
        }
        false
    }

    /// Waits until the client sends a message, or someone else starts a gateway that has not refused it. Returns `false`
    /// if the client leaves.
    async fn wait_for_need(&self, client: &mut ClientStreams, refused_by: Option<u32>) -> bool {
        let started = async {
            while self.running().is_none_or(|pid| Some(pid) == refused_by) {
                time::sleep(CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            has_arrived = client.input.arrived() => has_arrived,
            () = started => true,
        }
    }

    /// Returns the gateway that accepts clients.
    fn running(&self) -> Option<u32> {
        match self.location.try_lock() {
            Ok(LockAttempt::Held(pid)) => pid,
            Ok(LockAttempt::Acquired(_)) | Err(_) => None,
        }
    }

    /// Answers the requests that have arrived with an error.
    async fn reject_requests(&self, client: &mut ClientStreams, reason: &str) -> io::Result<()> {
        write_stderr(&format!("No gateway can be started: {reason}"));
        while let Some(chunk) = client.input.take() {
            chunk.split().1.for_each(|line| {
                self.log.borrow_mut().sent(&line);
            });
        }
        let (rejected, failed) = {
            let mut log = self.log.borrow_mut();
            (log.rejections(), log.failed(reason))
        };
        client.tell(&rejected).await?;
        client.tell(&failed).await
    }
}
