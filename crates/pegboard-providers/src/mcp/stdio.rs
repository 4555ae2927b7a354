//! A way to servers that are programs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::settings::mcp::Program;
use pegboard_wire::client::{self, Client};
use pegboard_wire::link::InputLimits;
use pegboard_wire::stdio::lines;
use tokio::time;

use super::connect::{Backing, Connect, ConnectError, Connected, Introduction};
use crate::process::{Ended, LastWords, Launch, LaunchError, Presence, Process, Supervisor};

/// How long the end of a program is waited for once it has closed its output: the one mostly follows the other, and
/// says more.
const SOON: Duration = Duration::from_millis(500);

/// A server that is a program, spoken to over its input and output. Each start is a process of its own.
///
/// ```
/// use pegboard_core::settings::mcp::Program;
/// use pegboard_providers::mcp::Stdio;
///
/// let way = Stdio::new(&Program { args: vec!["-y".into(), "some-server".into()], ..Program::new("npx") });
/// # let _ = way;
/// ```
pub struct Stdio {
    launch: Launch,
    /// The process that was started last.
    latest: Mutex<Option<Latest>>,
}

/// What is known of a process that somebody else keeps.
#[derive(Clone)]
struct Latest {
    /// What it writes beside the protocol.
    last_words: LastWords,
    presence: Presence,
}

impl Stdio {
    /// The way to a program that this process watches itself.
    pub fn new(program: &Program) -> Self {
        let Program { command, args, env, cwd } = program;
        let env = env.iter().map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect();
        let launch = Launch { args: args.clone(), env, cwd: cwd.clone(), ..Launch::new(command) };
        Self { launch, latest: Mutex::default() }
    }

    /// The same with somebody else who watches the program.
    #[must_use]
    pub fn supervised_by(mut self, supervisor: Supervisor) -> Self {
        self.launch.supervisor = Some(supervisor);
        self
    }

    fn note(&self, latest: Option<Latest>) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = latest;
    }

    fn latest(&self) -> Option<Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn start(&self, introduction: Introduction) -> Result<Connected, ConnectError> {
        // What was said before is no reason why this start comes to nothing.
        self.note(None);
        let (process, stdin, stdout) = Process::start_logging(&self.launch, introduction.log.clone())?;
        let presence = process.presence();
        self.note(Some(Latest { last_words: process.last_words(), presence: presence.clone() }));
        let mut running = Running(process);
        // The task that moves the lines ends with the link.
        let (link, _pump) = lines(stdout, stdin, InputLimits::client());
        let Introduction { receiver, options, .. } = introduction;
        let introduced = tokio::select! {
            introduced = Client::connect(link, receiver, options) => introduced,
            why = running.gone() => return Err(ended(why)),
        };
        match introduced {
            Ok(client) => {
                // Who watches the program is about to tell which process it is, if it has not yet.
                tokio::select! {
                    () = presence.known() => {}
                    _why = running.gone() => {}
                }
                Ok(Connected { client, backing: Some(Box::new(running)) })
            }
            Err(error @ client::ConnectError::Transport(_)) => {
                match time::timeout(SOON, running.gone()).await {
                    Ok(why) => Err(ended(why)),
                    Err(_elapsed) => Err(error.into()),
                }
            }
            // It speaks, and says the wrong thing. If it ends now then because nobody listens any more.
            Err(error) => Err(error.into()),
        }
    }
}

impl Connect for Stdio {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        self.start(introduction).boxed()
    }

    fn last_words(&self) -> Option<String> {
        let Latest { last_words, .. } = self.latest()?;
        let text = self.launch.redactor().text(&last_words.text()).into_owned();
        Some(text).filter(|text| !text.trim().is_empty())
    }

    fn pid(&self) -> Option<u32> {
        self.latest()?.presence.pid()
    }

    fn apart(&self) -> Option<Arc<dyn Connect>> {
        Some(Arc::new(Self { launch: self.launch.clone(), latest: Mutex::default() }))
    }
}

/// The process behind a connection.
struct Running(Process);

impl Backing for Running {
    fn gone(&mut self) -> BoxFuture<'_, String> {
        let mut exited = self.0.exited();
        async move {
            let exit = exited.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
            exit.map_or_else(|| "the program is gone".to_owned(), |exit| format!("the program {exit}"))
        }
        .boxed()
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            let Ended { left_running, .. } = self.0.end().await;
            if !left_running.is_empty() {
                tracing::warn!(pids = ?left_running, "Processes of an MCP server run on.");
            }
        }
        .boxed()
    }
}

fn ended(why: String) -> ConnectError {
    ConnectError::Unavailable { why, fix: "Run its command by hand to see what it says.".to_owned() }
}

impl From<LaunchError> for ConnectError {
    fn from(error: LaunchError) -> Self {
        Self::Unavailable { why: error.to_string(), fix: "Correct its `command`.".to_owned() }
    }
}
