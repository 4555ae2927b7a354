//! The same question need not be asked twice.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pegboard_core::call::Checks;
use pegboard_core::error::{CallError, Executed};
use pegboard_core::output::Output;
use pegboard_core::settings::CacheScope;
use pegboard_core::store::{CacheKey, CacheStore, CachedAnswer};
use pegboard_json::{RawJson, canonical, twin_name};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tracing::warn;

use super::{Ring, timeout};
use crate::catalogue::Tool;
use crate::event::{CacheResult, Event};
use crate::flight::{Flight, Track};
use crate::runtime::DEFAULT_TOOLBOX;

/// Gives an answer that is fresh enough, or joins a call that is under way, before it asks the tool.
pub(crate) struct Cache<R>(pub(crate) R);

impl<R: Ring> Ring for Cache<R> {
    async fn call(&self, flight: &Flight) -> Result<Output, CallError> {
        let Some(cached) = Cached::of(flight) else { return self.0.call(flight).await };
        if flight.call.context().options.fresh {
            let result = self.0.call(flight).await;
            cached.keep(flight, &result).await;
            return result;
        }
        loop {
            if let Some(output) = cached.look_up(flight).await {
                return Ok(output);
            }
            match flight.runtime().flights.join(cached.key, &flight.track) {
                Join::Lead(lead) => {
                    tell(flight, CacheResult::Miss);
                    flight.track.lead();
                    let result = self.0.call(flight).await;
                    cached.keep(flight, &result).await;
                    lead.share(flight, &result);
                    return result;
                }
                Join::Follow(follow) => {
                    if let Some(result) = followed(flight, follow).await {
                        tell(flight, CacheResult::Joined);
                        flight.track.journey().is_joined = true;
                        return result;
                    }
                    // Whoever led is gone, or its end is its own affair: somebody else leads.
                }
                Join::Alone => {
                    let result = self.0.call(flight).await;
                    cached.keep(flight, &result).await;
                    return result;
                }
            }
        }
    }
}

/// The end of a call that was joined, within the limit that this caller has.
async fn followed(flight: &Flight, follow: Follow) -> Shared {
    let leader = Arc::clone(&follow.leader);
    let mut end = pin!(follow.end());
    tokio::select! {
        biased;
        end = &mut end => return end,
        () = leader.runs() => {}
    }
    // The tool runs for this call as well, and this call's time with it.
    flight.track.begin();
    let Some(limit) = timeout::limit(flight) else { return end.await };
    tokio::select! {
        biased;
        end = end => end,
        () = timeout::passes(flight, limit, &leader) => Some(Err(CallError::TimedOut { limit })),
    }
}

/// A call whose answer may be kept.
struct Cached<'f> {
    store: &'f dyn CacheStore,
    key: CacheKey,
    time_to_live: Duration,
}

impl<'f> Cached<'f> {
    fn of(flight: &'f Flight) -> Option<Self> {
        let store = flight.runtime().cache.as_deref()?;
        let entry = flight.call.entry();
        let time_to_live = flight.tool.rules.cache.or(entry.cache())?;
        let arguments = flight.call.raw_arguments();
        // Readers differ in which of two members they take, so what is asked for is not known.
        let is_kept = (entry.is_managed() || entry.cache().is_some()) && flight.checks == Checks::All;
        if !is_kept || twin_name(arguments).is_some() {
            return None;
        }
        let caller = &flight.track.caller;
        let scope = match flight.tool.rules.cache_scope {
            CacheScope::Global => None,
            CacheScope::Tenant if caller.tenant().is_empty() => Some(("principal", caller.principal())),
            CacheScope::Tenant => Some(("tenant", caller.tenant())),
            CacheScope::Session => Some(("session", caller.id())),
        };
        let key = key(&flight.tool, scope, arguments);
        Some(Self { store, key, time_to_live })
    }

    async fn look_up(&self, flight: &Flight) -> Option<Output> {
        let now = flight.runtime().wall.now();
        let answer = match self.store.get(self.key, now).await {
            Ok(answer) => answer?,
            Err(error) => {
                warn!(%error, "The cache could not be read.");
                return None;
            }
        };
        // The time to live may be shorter now than it was when the answer was kept.
        let age = now.duration_since(answer.made).unwrap_or_default();
        if age > self.time_to_live {
            return None;
        }
        let output = Output::from_bytes(&answer.body)?;
        flight.track.journey().is_cached = true;
        tell(flight, CacheResult::Hit { age });
        Some(output)
    }

    /// Keeps a good answer. One that its tool asked its caller for is for that caller alone.
    async fn keep(&self, flight: &Flight, result: &Result<Output, CallError>) {
        let Ok(output) = result else { return };
        if output.is_error() || !output.mismatches.is_empty() || flight.track.clock.was_stopped() {
            return;
        }
        let now = flight.runtime().wall.now();
        let answer = CachedAnswer {
            body: output.to_bytes(),
            tool: flight.tool.flat_name.to_string(),
            made: now,
            expires: now.checked_add(self.time_to_live).unwrap_or(now),
        };
        match self.store.put(self.key, answer, now).await {
            Ok(()) => tell(flight, CacheResult::Stored),
            Err(error) => warn!(%error, "The answer could not be kept in the cache."),
        }
    }
}

fn tell(flight: &Flight, result: CacheResult) {
    flight.runtime().events.emit(|| Event::Cache { call: flight.subject(), result });
}

/// What an answer is kept under: the digest of a canonical document about the call.
fn key(tool: &Tool, scope: Option<(&str, &str)>, arguments: &RawJson) -> CacheKey {
    let mut digest = Sha256::new();
    let mut say = |text: &str| digest.update(text.as_bytes());
    let quoted = |text: &str| RawJson::of(text);
    say("{");
    if !tool.fingerprint.is_empty() {
        say(&format!("\"fingerprint\":{},", quoted(&tool.fingerprint).as_str()));
    }
    say("\"kind\":\"tool\",\"parameters\":");
    say(canonical(arguments).as_str());
    let schema = tool.entry.input_schema();
    if !schema.is_empty() {
        say(&format!(",\"schema\":\"{}\"", tool.schema_digest()));
    }
    if let Some((kind, id)) = scope {
        say(&format!(",\"scope\":[{},{}]", quoted(kind).as_str(), quoted(id).as_str()));
    }
    if tool.id.toolbox.as_str() != DEFAULT_TOOLBOX {
        say(&format!(",\"toolbox\":{}", quoted(tool.id.toolbox.as_str()).as_str()));
    }
    let (name, namespace) = (quoted(tool.id.name.as_str()), quoted(tool.id.server.as_str()));
    let kind = tool.kind.as_str();
    say(&format!(
        ",\"tool\":{{\"kind\":\"{kind}\",\"name\":{},\"namespace\":{}}},\"v\":1}}",
        name.as_str(),
        namespace.as_str()
    ));
    CacheKey(digest.finalize().into())
}

/// The calls under way whose answers may be kept, so that nobody asks the same at the same time.
#[derive(Default)]
pub(crate) struct Flights(Mutex<HashMap<CacheKey, UnderWay>>);

type Shared = Option<Result<Output, CallError>>;

struct UnderWay {
    end: watch::Receiver<Shared>,
    leader: Arc<Track>,
}

enum Join<'f> {
    Lead(Lead<'f>),
    Follow(Follow),
    /// Others wait for a call above this one, so it must not wait for them.
    Alone,
}

impl Flights {
    fn join(&self, key: CacheKey, track: &Arc<Track>) -> Join<'_> {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match under_way.get(&key) {
            Some(_) if track.is_waited_for() => Join::Alone,
            // A leader that has asked its caller something has an answer that is not for others.
            Some(other) if !other.leader.clock.was_stopped() && !Arc::ptr_eq(&other.leader, track) => {
                Join::Follow(Follow { end: other.end.clone(), leader: Arc::clone(&other.leader) })
            }
            _ => {
                let (sender, end) = watch::channel(None);
                under_way.insert(key, UnderWay { end, leader: Arc::clone(track) });
                Join::Lead(Lead { flights: self, key, end: sender, track: Arc::clone(track) })
            }
        }
    }
}

/// The right to ask. Dropping it without sharing an end lets a follower lead.
struct Lead<'f> {
    flights: &'f Flights,
    key: CacheKey,
    end: watch::Sender<Shared>,
    track: Arc<Track>,
}

impl Lead<'_> {
    /// Gives followers the end, unless it has to do with this caller alone.
    fn share(self, flight: &Flight, result: &Result<Output, CallError>) {
        let is_private = flight.track.clock.was_stopped()
            || match result {
                Ok(_) => false,
                // Its own limits, which others need not have.
                Err(
                    CallError::Canceled { .. }
                    | CallError::DeadlinePassed { .. }
                    | CallError::TimedOut { .. },
                ) => true,
                Err(error) => error.executed() == Executed::No,
            };
        if !is_private {
            self.end.send_replace(Some(result.clone()));
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut under_way = self.flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.get(&self.key).is_some_and(|mine| Arc::ptr_eq(&mine.leader, &self.track)) {
            under_way.remove(&self.key);
        }
    }
}

struct Follow {
    end: watch::Receiver<Shared>,
    leader: Arc<Track>,
}

impl Follow {
    /// The leader's end, or nothing if it has none to share.
    async fn end(mut self) -> Shared {
        tokio::select! {
            biased;
            end = self.end.wait_for(Option::is_some) => end.ok()?.clone(),
            () = self.leader.clock.stopped() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use pegboard_core::entry::ToolEntry;
    use pegboard_core::id::{ServerName, ToolboxName};
    use pegboard_core::provider::ToolKind;

    use super::*;

    fn tool(fingerprint: &str) -> Arc<Tool> {
        let entry = ToolEntry::from_fn("search", "", |value: serde_json::Value| async move { Ok(value) });
        Tool::lone(&ServerName::new("github").unwrap(), Arc::new(entry), ToolKind::Mcp, fingerprint)
    }

    fn read(text: &'static str) -> RawJson {
        RawJson::parse(text.into()).unwrap()
    }

    #[test]
    fn a_key_is_the_digest_of_the_call_whatever_the_order_of_its_arguments() {
        let known = "dc8947cc88fa7385e1977be23c76ed5fe41b6f4bd89a1256574f57d8559401ba";
        assert_eq!(key(&tool(""), None, &read(r#"{"b":2,"a":1}"#)).to_string(), known);
        assert_eq!(key(&tool(""), None, &read(r#"{ "a" : 1, "\u0062":2}"#)).to_string(), known);
    }

    #[test]
    fn whatever_makes_an_answer_another_makes_the_key_another() {
        let keys = [
            key(&tool(""), None, &read(r#"{"a":1}"#)),
            key(&tool(""), None, &read(r#"{"a":1.0}"#)),
            key(&tool("x"), None, &read(r#"{"a":1}"#)),
            key(&tool(""), Some(("tenant", "t")), &read(r#"{"a":1}"#)),
            key(&tool(""), Some(("session", "t")), &read(r#"{"a":1}"#)),
        ];
        let elsewhere = {
            let mut tool = tool("");
            Arc::make_mut(&mut tool).id.toolbox = ToolboxName::new("prod").unwrap();
            key(&tool, None, &read(r#"{"a":1}"#))
        };
        let other_schema = {
            let mut tool = tool("");
            let entry =
                ToolEntry::clone(&tool.entry).with_input_schema(serde_json::json!({"type": "object"}));
            Arc::make_mut(&mut tool).entry = Arc::new(entry);
            key(&tool, None, &read(r#"{"a":1}"#))
        };
        let keys = [&keys[..], &[elsewhere, other_schema]].concat();
        let different: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }
}
