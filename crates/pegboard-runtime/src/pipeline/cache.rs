//! Caches answers and coalesces identical calls in flight.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hmac_sha256::Hash as Sha256;
use parking_lot::Mutex;
use pegboard_core::call::SchemaChecks;
use pegboard_core::error::{CallError, Executed};
use pegboard_core::output::Output;
use pegboard_core::owner::Owner;
use pegboard_core::settings::CacheScope;
use pegboard_core::store::{CacheKey, CacheStore, CachedResult};
use pegboard_json::{RawJson, canonical, duplicate_key};
use tokio::sync::watch;
use tracing::warn;

use super::{Layer, timeout};
use crate::call::active::ActiveCall;
use crate::call::admit::AdmittedCall;
use crate::caller::Caller;
use crate::catalogue::CatalogueTool;
use crate::event::{CacheResult, RuntimeEvent};
use crate::runtime::DEFAULT_TOOLBOX;

/// Returns a fresh cached answer, or joins an identical call in flight, before it calls the tool.
pub(crate) struct CacheLayer<R>(pub(crate) R);

impl<R: Layer> Layer for CacheLayer<R> {
    async fn call(&self, admitted: &AdmittedCall) -> Result<Output, CallError> {
        let Some(cacheable) = CacheableCall::of(admitted) else { return self.0.call(admitted).await };
        if admitted.call.context().options.fresh {
            let result = self.0.call(admitted).await;
            cacheable.store(admitted, &result).await;
            return result;
        }
        loop {
            if let Some(output) = cacheable.look_up(admitted).await {
                return Ok(output);
            }
            match admitted.shared().single_flight.join(cacheable.key, &admitted.active_call) {
                FlightRole::Leader(leader) => {
                    emit(admitted, CacheResult::Miss);
                    admitted.active_call.execution.mark_leader();
                    let result = self.0.call(admitted).await;
                    cacheable.store(admitted, &result).await;
                    leader.share(admitted, &result);
                    return result;
                }
                FlightRole::Follower(follower) => {
                    if let Some(result) = Box::pin(follow_leader(admitted, follower)).await {
                        emit(admitted, CacheResult::Joined);
                        admitted.active_call.recorder.meta().is_joined = true;
                        return result;
                    }
                    // The leader is gone or its result is private: try again, possibly as leader.
                }
                FlightRole::Alone => {
                    let result = self.0.call(admitted).await;
                    cacheable.store(admitted, &result).await;
                    return result;
                }
            }
        }
    }
}

/// Waits for the result of the leader, within this caller's own timeout.
async fn follow_leader(admitted: &AdmittedCall, follower: Follower) -> SharedResult {
    let leader = Arc::clone(&follower.leader);
    let mut end = pin!(follower.end());
    tokio::select! {
        biased;
        end = &mut end => return end,
        () = leader.execution.wait_until_running() => {}
    }
    // The tool runs for this call as well, so its timeout starts.
    admitted.active_call.execution.mark_running();
    let Some(limit) = timeout::time_limit(admitted) else { return end.await };
    tokio::select! {
        biased;
        end = end => end,
        () = timeout::wait_for_timeout(admitted, limit, &leader) => Some(Err(CallError::TimedOut { limit })),
    }
}

/// A call with a cacheable answer.
struct CacheableCall<'f> {
    store: &'f dyn CacheStore,
    key: CacheKey,
    time_to_live: Duration,
}

impl<'f> CacheableCall<'f> {
    fn of(admitted: &'f AdmittedCall) -> Option<Self> {
        let store = admitted.shared().cache.as_deref()?;
        let entry = admitted.call.entry();
        let time_to_live = admitted.tool.policy.cache.or(entry.cache())?;
        let arguments = admitted.call.raw_arguments();
        // JSON readers differ in which of two duplicate keys they take, so such calls have no well-defined
        // key.
        let is_cacheable =
            (entry.is_managed() || entry.cache().is_some()) && admitted.checks == SchemaChecks::All;
        if !is_cacheable || duplicate_key(arguments).is_some() {
            return None;
        }
        let caller = admitted.active_call.caller();
        let audience = CacheAudience::of(admitted.tool.policy.cache_scope, caller);
        let key = cache_key(&admitted.tool, audience, arguments);
        Some(Self { store, key, time_to_live })
    }

    async fn look_up(&self, admitted: &AdmittedCall) -> Option<Output> {
        let now = admitted.shared().wall.now();
        let answer = match self.store.get(self.key, now).await {
            Ok(answer) => answer?,
            Err(error) => {
                warn!(%error, "Cannot read the cache.");
                return None;
            }
        };
        // The time to live may have been shortened since the answer was cached.
        let age = now.duration_since(answer.created).unwrap_or_default();
        if age > self.time_to_live {
            return None;
        }
        let output = Output::from_bytes(&answer.body)?;
        admitted.active_call.recorder.meta().is_cached = true;
        emit(admitted, CacheResult::Hit { age });
        Some(output)
    }

    /// Caches a successful answer. An answer that depends on input from the caller is private to it.
    async fn store(&self, admitted: &AdmittedCall, result: &Result<Output, CallError>) {
        let Ok(output) = result else { return };
        if output.is_error() || !output.mismatches.is_empty() || admitted.active_call.clock.was_paused() {
            return;
        }
        let now = admitted.shared().wall.now();
        let answer = CachedResult {
            body: output.to_bytes(),
            tool: admitted.tool.flat_name.to_string(),
            created: now,
            expires: now.checked_add(self.time_to_live).unwrap_or(now),
        };
        match self.store.put(self.key, answer, now).await {
            Ok(()) => emit(admitted, CacheResult::Stored),
            Err(error) => warn!(%error, "Cannot write the answer to the cache."),
        }
    }
}

/// Callers that share cached answers.
#[derive(Clone, Copy)]
enum CacheAudience<'a> {
    Everyone,
    Tenant(&'a str),
    Owner(&'a Owner),
    Session(&'a str),
}

impl<'a> CacheAudience<'a> {
    fn of(scope: CacheScope, caller: &'a Caller) -> Self {
        let owner = caller.owner();
        match scope {
            CacheScope::Global => Self::Everyone,
            CacheScope::Tenant if !owner.tenant().is_empty() => Self::Tenant(owner.tenant()),
            CacheScope::Tenant | CacheScope::Principal => Self::Owner(owner),
            CacheScope::Session => Self::Session(caller.id()),
        }
    }

    /// Returns the kind and the id of the audience; `None` for everyone.
    fn key(self) -> Option<(&'static str, &'a str)> {
        match self {
            Self::Everyone => None,
            Self::Tenant(tenant) => Some(("tenant", tenant)),
            Self::Owner(owner) => Some(("owner", owner.as_str())),
            Self::Session(session) => Some(("session", session)),
        }
    }
}

fn emit(admitted: &AdmittedCall, result: CacheResult) {
    admitted.shared().events.emit(|| RuntimeEvent::Cache { call: admitted.info(), result });
}

/// Returns the cache key: the digest of a canonical document about the call.
fn cache_key(tool: &CatalogueTool, audience: CacheAudience<'_>, arguments: &RawJson) -> CacheKey {
    let mut digest = Sha256::new();
    let mut add = |text: &str| digest.update(text.as_bytes());
    let quoted = |text: &str| RawJson::of(text);
    add("{");
    if !tool.fingerprint.is_empty() {
        add(&format!("\"fingerprint\":{},", quoted(&tool.fingerprint).as_str()));
    }
    add("\"kind\":\"tool\",\"parameters\":");
    add(canonical(arguments).as_str());
    let schema = tool.entry.input_schema();
    if !schema.is_empty() {
        add(&format!(",\"schema\":\"{}\"", tool.schema_digest()));
    }
    if let Some((kind, id)) = audience.key() {
        add(&format!(",\"scope\":[{},{}]", quoted(kind).as_str(), quoted(id).as_str()));
    }
    if tool.id.toolbox.as_str() != DEFAULT_TOOLBOX {
        add(&format!(",\"toolbox\":{}", quoted(tool.id.toolbox.as_str()).as_str()));
    }
    let (name, namespace) = (quoted(tool.id.name.as_str()), quoted(tool.id.server.as_str()));
    let kind = tool.kind.as_str();
    add(&format!(
        ",\"tool\":{{\"kind\":\"{kind}\",\"name\":{},\"namespace\":{}}},\"v\":1}}",
        name.as_str(),
        namespace.as_str()
    ));
    CacheKey(digest.finalize())
}

/// Single flight: the cacheable calls in flight, by key.
#[derive(Default)]
pub(crate) struct SingleFlight(Mutex<HashMap<CacheKey, FlightInProgress>>);

type SharedResult = Option<Result<Output, CallError>>;

struct FlightInProgress {
    end: watch::Receiver<SharedResult>,
    leader: Arc<ActiveCall>,
}

enum FlightRole<'f> {
    Leader(Leader<'f>),
    Follower(Follower),
    /// An ancestor blocks other calls, so this call must not wait for them.
    Alone,
}

impl SingleFlight {
    fn join(&self, key: CacheKey, active_call: &Arc<ActiveCall>) -> FlightRole<'_> {
        let mut in_flight = self.0.lock();
        match in_flight.get(&key) {
            Some(_) if active_call.blocks_others() => FlightRole::Alone,
            // A leader that asked its caller for input has an answer that is private to it.
            Some(other) if !other.leader.clock.was_paused() && !Arc::ptr_eq(&other.leader, active_call) => {
                FlightRole::Follower(Follower { end: other.end.clone(), leader: Arc::clone(&other.leader) })
            }
            _ => {
                let (sender, end) = watch::channel(None);
                in_flight.insert(key, FlightInProgress { end, leader: Arc::clone(active_call) });
                FlightRole::Leader(Leader {
                    single_flight: self,
                    key,
                    end: sender,
                    active_call: Arc::clone(active_call),
                })
            }
        }
    }
}

/// The leader of a single flight. Dropping it without sharing a result lets a follower lead.
struct Leader<'f> {
    single_flight: &'f SingleFlight,
    key: CacheKey,
    end: watch::Sender<SharedResult>,
    active_call: Arc<ActiveCall>,
}

impl Leader<'_> {
    /// Shares the result with the followers, unless it is private to this caller.
    fn share(self, admitted: &AdmittedCall, result: &Result<Output, CallError>) {
        let is_private = admitted.active_call.clock.was_paused()
            || match result {
                Ok(_) => false,
                // Limits of this caller, which do not apply to the followers.
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

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.single_flight.0.lock();
        if in_flight.get(&self.key).is_some_and(|mine| Arc::ptr_eq(&mine.leader, &self.active_call)) {
            in_flight.remove(&self.key);
        }
    }
}

struct Follower {
    end: watch::Receiver<SharedResult>,
    leader: Arc<ActiveCall>,
}

impl Follower {
    /// Returns the leader's result, or `None` if there is none to share.
    async fn end(mut self) -> SharedResult {
        tokio::select! {
            biased;
            end = self.end.wait_for(Option::is_some) => end.ok()?.clone(),
            () = self.leader.clock.paused() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use pegboard_core::entry::ToolEntry;
    use pegboard_core::id::{ServerName, ToolboxName};
    use pegboard_core::provider::ToolKind;

    use super::CacheAudience::{Everyone, Session, Tenant};
    use super::*;

    fn tool(fingerprint: &str) -> Arc<CatalogueTool> {
        let entry = ToolEntry::from_fn("search", "", |value: serde_json::Value| async move { Ok(value) });
        CatalogueTool::standalone(
            &ServerName::new("github").unwrap(),
            Arc::new(entry),
            ToolKind::Mcp,
            fingerprint,
        )
    }

    fn read(text: &'static str) -> RawJson {
        RawJson::parse(text.into()).unwrap()
    }

    #[test]
    fn a_key_does_not_depend_on_the_order_of_arguments() {
        let known = "dc8947cc88fa7385e1977be23c76ed5fe41b6f4bd89a1256574f57d8559401ba";
        assert_eq!(cache_key(&tool(""), Everyone, &read(r#"{"b":2,"a":1}"#)).to_string(), known);
        assert_eq!(cache_key(&tool(""), Everyone, &read(r#"{ "a" : 1, "\u0062":2}"#)).to_string(), known);
    }

    #[test]
    fn everything_that_affects_an_answer_affects_the_key() {
        let keys = [
            cache_key(&tool(""), Everyone, &read(r#"{"a":1}"#)),
            cache_key(&tool(""), Everyone, &read(r#"{"a":1.0}"#)),
            cache_key(&tool("x"), Everyone, &read(r#"{"a":1}"#)),
            cache_key(&tool(""), Tenant("t"), &read(r#"{"a":1}"#)),
            cache_key(&tool(""), Session("t"), &read(r#"{"a":1}"#)),
            cache_key(&tool(""), CacheAudience::Owner(&Owner::new("ann")), &read(r#"{"a":1}"#)),
            cache_key(&tool(""), CacheAudience::Owner(&Owner::new("bob")), &read(r#"{"a":1}"#)),
            cache_key(&tool(""), CacheAudience::Owner(&Owner::in_tenant("t", "bob")), &read(r#"{"a":1}"#)),
        ];
        let elsewhere = {
            let mut tool = tool("");
            Arc::make_mut(&mut tool).id.toolbox = ToolboxName::new("prod").unwrap();
            cache_key(&tool, Everyone, &read(r#"{"a":1}"#))
        };
        let other_schema = {
            let mut tool = tool("");
            let entry =
                ToolEntry::clone(&tool.entry).with_input_schema(serde_json::json!({"type": "object"}));
            Arc::make_mut(&mut tool).entry = Arc::new(entry);
            cache_key(&tool, Everyone, &read(r#"{"a":1}"#))
        };
        let keys = [&keys[..], &[elsewhere, other_schema]].concat();
        let different: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }
}
