//! Hearing what changes: a server is told, each time it is started, what callers want to know.

use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;

use futures_util::FutureExt;
use pegboard_core::provider::Update;
use pegboard_json::RawJson;
use pegboard_wire::client::{Client, Era, RequestOptions};
use pegboard_wire::era::LogLevel;
use pegboard_wire::{Exchange, Failure, Happening, Id, code};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use super::life::Live;
use super::list::List;
use super::traffic::Traffic;
use super::wishes::{Wish, Wishes};

/// How long until a stream of changes that ended is asked for again.
const LISTEN_GAP: Duration = Duration::from_secs(5);
/// How long at most, for a server that ends one after another.
const MAX_LISTEN_GAP: Duration = Duration::from_mins(5);
/// How long a server may take to hear one wish again.
const RENEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Hears what changes for as long as a server runs; never ends.
pub(super) async fn listen(live: &Live, wishes: &Wishes) {
    let hearing = async {
        match live.client().era() {
            Era::Session => renew(live, wishes.now()).await,
            Era::Stateless => hear(live, wishes.news()).await,
        }
    };
    tokio::join!(hearing, stay(live, wishes.news()));
}

/// Whether a server can tell when a resource changes.
pub(super) fn may_watch(client: &Client) -> bool {
    has(client, &["resources", "subscribe"])
}

/// Whether a server tells when a list changes.
pub(super) fn tells_changes(client: &Client, list: List) -> bool {
    has(client, &[list.capability(), "listChanged"])
}

/// Whether a server tells its log.
pub(super) fn has_log(client: &Client) -> bool {
    client.server().capabilities.get("logging").is_some()
}

/// Tells a server with a session from which level on lines of its log are wanted.
pub(super) async fn tell_level(client: &Client, level: LogLevel) {
    renew_one(client, "logging/setLevel", json!({"level": level})).await;
}

fn has(client: &Client, path: &[&str]) -> bool {
    client.server().capabilities.at(path).is_some_and(|flag| flag.as_str() == "true")
}

/// Keeps a server from being taken for unused while somebody watches a resource of it; never ends.
async fn stay(live: &Live, mut news: watch::Receiver<Wish>) {
    loop {
        let is_watched = !news.borrow_and_update().resources.is_empty();
        let _stay = if is_watched { live.traffic().stay() } else { None };
        if news.changed().await.is_err() {
            return pending().await;
        }
    }
}

/// Tells a server with a session what an earlier start of it was told; never ends.
async fn renew(live: &Live, Wish { resources, log_level, .. }: Wish) {
    if let Some(level) = log_level.filter(|_| has_log(live.client())) {
        tell_level(live.client(), level).await;
    }
    for uri in &resources {
        renew_one(live.client(), "resources/subscribe", json!({"uri": uri})).await;
    }
    note_gap(live.traffic(), &resources);
    pending::<()>().await;
}

async fn renew_one(client: &Client, method: &str, params: serde_json::Value) {
    let asking = async {
        client.request(method, Some(params.into()), RequestOptions::default()).await?.answer().await
    };
    let problem = match time::timeout(RENEW_TIMEOUT, asking).await {
        Ok(Ok(_)) => return,
        Ok(Err(failure)) => failure.to_string(),
        Err(_elapsed) => "the server took too long".to_owned(),
    };
    tracing::warn!(method, "MCP server was not told again what is wanted of it: {problem}");
}

/// Resources may have changed while nobody listened.
fn note_gap(traffic: &Traffic, resources: &BTreeSet<String>) {
    for uri in resources {
        traffic.update(Update::Resource(RawJson::from(json!({"uri": uri}))));
    }
}

/// Hears what changes from a server that says so only when asked; never ends.
async fn hear(live: &Live, mut news: watch::Receiver<Wish>) {
    note_gap(live.traffic(), &news.borrow().resources);
    let mut gap = LISTEN_GAP;
    loop {
        let begun = Instant::now();
        match hear_stream(live, &mut news).await {
            Err(Failure::Refused(error)) if error.code == code::METHOD_NOT_FOUND => return pending().await,
            // A stream that breaks off may be the first sign that the server is gone.
            Err(Failure::Lost(_)) => live.traffic().note_doubt(),
            Ok(_) | Err(Failure::Refused(_) | Failure::Overloaded) => {}
        }
        if begun.elapsed() >= gap {
            gap = LISTEN_GAP;
        }
        tokio::select! {
            () = time::sleep(gap) => {}
            // Who wants to hear of something else does not wait that long.
            Ok(()) = news.changed() => {}
        }
        gap = (gap * 2).min(MAX_LISTEN_GAP);
        // Something may have changed while nobody listened.
        for list in List::ALL {
            live.traffic().note_change(list);
        }
        note_gap(live.traffic(), &news.borrow().resources);
    }
}

/// Hears one stream after another, each for the newest wishes, until one ends by itself.
async fn hear_stream(live: &Live, news: &mut watch::Receiver<Wish>) -> Result<RawJson, Failure> {
    let mut current = Stream::open(live, news).await?;
    // A stream goes on until the next one has begun, so that nothing is missed between them.
    let mut before = None;
    let mut awaited = current.id();
    loop {
        if awaited.is_none() {
            live.traffic().note_told(current.version);
            if let Some(stream) = before.take() {
                Stream::finish(stream, live.traffic());
            }
        }
        tokio::select! {
            happening = current.next() => match happening {
                Happening::Notice(notice) => drop(live.traffic().hear(notice)),
                Happening::End(end) => return end,
            },
            () = acknowledgement(live.traffic(), awaited.as_ref()) => awaited = None,
            changed = news.changed() => {
                if changed.is_err() {
                    return pending().await;
                }
                before = Some(std::mem::replace(&mut current, Stream::open(live, news).await?));
                awaited = current.id();
            }
        }
    }
}

/// Waits until the server has begun to tell; for ever if that is not awaited.
async fn acknowledgement(traffic: &Traffic, awaited: Option<&Id>) {
    match awaited {
        Some(id) => traffic.acknowledgement(id).await,
        None => pending().await,
    }
}

/// A stream of changes.
struct Stream {
    /// There unless there is nothing to hear of.
    exchange: Option<Exchange>,
    /// Which wishes it is for.
    version: u64,
}

impl Stream {
    /// Asks for a stream of everything that is of interest now.
    async fn open(live: &Live, news: &mut watch::Receiver<Wish>) -> Result<Self, Failure> {
        let client = live.client();
        let Wish { resources, version, .. } = news.borrow_and_update().clone();
        let mut filter = RawJson::empty_object();
        for (list, name) in [
            (List::Tools, "toolsListChanged"),
            (List::Prompts, "promptsListChanged"),
            (List::Resources, "resourcesListChanged"),
        ] {
            if tells_changes(client, list) {
                filter = filter.with(name, &RawJson::of(&true));
            }
        }
        if !resources.is_empty() && may_watch(client) {
            filter = filter.with("resourceSubscriptions", &RawJson::of(&resources));
        }
        let exchange = if filter == RawJson::empty_object() {
            None
        } else {
            let params = RawJson::empty_object().with("notifications", &filter);
            Some(client.request("subscriptions/listen", Some(params), RequestOptions::default()).await?)
        };
        Ok(Self { exchange, version })
    }

    async fn next(&mut self) -> Happening {
        match &mut self.exchange {
            Some(exchange) => exchange.next().await,
            None => pending().await,
        }
    }

    fn id(&self) -> Option<Id> {
        self.exchange.as_ref().map(Exchange::id)
    }

    /// Hears what is left, and ends the stream.
    fn finish(mut self, traffic: &Traffic) {
        while let Some(Happening::Notice(notice)) = self.next().now_or_never() {
            traffic.hear(notice);
        }
    }
}
