//! One way to ask a gateway: the one that runs, through its local socket, or the same in this process.

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use pegboard::telemetry::Telemetry;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tower::ServiceExt;

use crate::cli::{Exit, Failure, Globals};
use crate::place::{self, Wanted};
use here::Here;
pub(crate) use stream::{Events, Lines};
pub(crate) use views::{ServerView, ToolView, ToolboxView, view};

mod here;
mod refusal;
#[cfg(unix)]
mod socket;
mod stream;
mod views;

/// How long an answer may be that is read as a whole.
const MAX_BYTES: usize = 1024 * 1024 * 1024;
/// What may stand in a part of an address as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Where commands ask.
pub(crate) struct Desk {
    way: Way,
}

enum Way {
    /// A gateway that runs.
    #[cfg(unix)]
    Running(socket::Socket),
    /// The same routes, in this process.
    Here(Box<Here>),
}

/// What a command needs a gateway for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// For tools: without a gateway that runs, one is started.
    Tools,
    /// For what was written down: nothing is started for that.
    Records,
    /// For what only a gateway knows that runs.
    Running,
}

/// In which form an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Document,
    Events,
    Lines,
}

impl Desk {
    /// The gateway that fits: one that runs, or else one of this process.
    pub(crate) async fn open(globals: &Globals, telemetry: &Telemetry, need: Need) -> Result<Self, Failure> {
        match (Self::running(globals).await, need) {
            (Ok(desk), _) => Ok(desk),
            (Err(_), Need::Tools) => Here::with_tools(globals, telemetry).await.map(Self::here),
            (Err(_), Need::Records) => Here::with_records(globals, telemetry).await.map(Self::here),
            (Err(failure), Need::Running) => Err(failure),
        }
    }

    /// The gateway that runs and serves the configuration that is meant; any, if none is.
    pub(crate) async fn running(globals: &Globals) -> Result<Self, Failure> {
        let wanted = Wanted::unseen(globals)?;
        #[cfg(unix)]
        if let Some(state) = place::state(globals.state.as_deref()).filter(|_| may_run(globals))
            && let Some(desk) = socket::find(&place::sockets(&state), &wanted.paths()).await
        {
            return Ok(desk);
        }
        let message = match wanted.paths().as_slice() {
            [] => "no gateway runs".to_owned(),
            _ => format!("no gateway runs that serves {}", wanted.files()),
        };
        Err(Failure::new(Exit::Unavailable, "not_running", message).hint("start one: pegboard serve"))
    }

    fn here(here: Here) -> Self {
        Self { way: Way::Here(Box::new(here)) }
    }

    /// Whether it was started just now, so that nothing is ready yet.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.way, Way::Here(_))
    }

    /// Ends what was started for it.
    pub(crate) async fn close(self) {
        match self.way {
            #[cfg(unix)]
            Way::Running(_) => {}
            Way::Here(here) => here.close().await,
        }
    }

    /// A document.
    pub(crate) async fn get(&self, address: &Address) -> Result<Value, Failure> {
        let answer = self.ask(Method::GET, address, None, Form::Document).await?;
        document(answer).await
    }

    /// A document, for something that is done.
    pub(crate) async fn post(&self, address: &Address, body: &RawJson) -> Result<Value, Failure> {
        let answer = self.ask(Method::POST, address, Some(body), Form::Document).await?;
        document(answer).await
    }

    /// Takes something away.
    pub(crate) async fn delete(&self, address: &Address) -> Result<(), Failure> {
        self.ask(Method::DELETE, address, None, Form::Document).await.map(|_| ())
    }

    /// What is kept, as it is.
    pub(crate) async fn bytes(&self, address: &Address) -> Result<Bytes, Failure> {
        whole(self.ask(Method::GET, address, None, Form::Document).await?).await
    }

    /// What happens, as it does.
    pub(crate) async fn follow(&self, address: &Address) -> Result<Events, Failure> {
        let answer = self.ask(Method::GET, address, None, Form::Events).await?;
        Ok(Events::of(answer.into_body()))
    }

    /// What happens while something is done.
    pub(crate) async fn events(&self, address: &Address, body: &RawJson) -> Result<Events, Failure> {
        let answer = self.ask(Method::POST, address, Some(body), Form::Events).await?;
        Ok(Events::of(answer.into_body()))
    }

    /// What comes of several things, a line for each as it ends.
    pub(crate) async fn lines(&self, address: &Address, body: &RawJson) -> Result<Lines, Failure> {
        let answer = self.ask(Method::POST, address, Some(body), Form::Lines).await?;
        Ok(Lines::of(answer.into_body()))
    }

    async fn ask(
        &self,
        method: Method,
        address: &Address,
        body: Option<&RawJson>,
        form: Form,
    ) -> Result<Response<Body>, Failure> {
        let form = match form {
            Form::Document => "application/json",
            Form::Events => "text/event-stream",
            Form::Lines => "application/x-ndjson",
        };
        let request = Request::builder()
            .method(method)
            .uri(&address.0)
            .header(header::HOST, "localhost")
            .header(header::ACCEPT, form)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.map(|body| Body::from(body.clone().into_bytes())).unwrap_or_default())
            .map_err(|error| Failure::new(Exit::Bug, "internal_error", error.to_string()))?;
        let answer = match &self.way {
            #[cfg(unix)]
            Way::Running(socket) => socket.send(request).await?,
            Way::Here(here) => match here.routes().oneshot(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            },
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let told = whole(answer).await?;
        Err(refusal::read(status, &told))
    }
}

/// Whether a gateway that runs may be meant: no other has settings of this command alone.
#[cfg(unix)]
fn may_run(globals: &Globals) -> bool {
    !globals.no_daemon && globals.set.is_empty()
}

async fn whole(answer: Response<Body>) -> Result<Bytes, Failure> {
    let read = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    read.map(http_body_util::Collected::to_bytes).map_err(|_| gone())
}

async fn document(answer: Response<Body>) -> Result<Value, Failure> {
    let bytes = whole(answer).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        Failure::of_kind(ErrorKind::InternalError, format!("the gateway answers no JSON: {error}"))
    })
}

/// A gateway that ends in the middle of an answer.
fn gone() -> Failure {
    Failure::new(Exit::Unavailable, "not_running", "the gateway ended before it had answered")
        .hint("see what it said last where it was started, then start it again: pegboard serve")
}

/// Where something is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address(String);

impl Address {
    /// The place of these parts: `/api/servers/dev/github`.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let parts = parts.iter().map(|part| format!("/{}", utf8_percent_encode(part, PLAIN)));
        Self(std::iter::once("/api".to_owned()).chain(parts).collect())
    }

    /// With what exactly is asked.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &impl ToString) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(utf8_percent_encode(&value.to_string(), PLAIN));
        self
    }

    /// With what exactly is asked, if it is.
    #[must_use]
    pub(crate) fn with_some(self, name: &str, value: Option<&impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}
