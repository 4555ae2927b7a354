//! Property tests: both engines answer alike.

use std::time::SystemTime;

use bytes::Bytes;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{CacheKey, CachedResult, SessionHandle, SessionRecord, StoreError};
use pegboard_stores::limits::{CacheLimits, SessionLimits};
use proptest::prelude::*;
use tokio::runtime::Builder;

use crate::behaviour::engine::{Engine, at};

/// An operation on a cache. Times are seconds relative to the operation, from a small range so that they
/// collide.
#[derive(Clone, Debug)]
enum CacheOp {
    Get(u8),
    Put { key: u8, n_bytes: usize, created: u64, expires: u64 },
    Clear,
}

fn cache_op() -> impl Strategy<Value = CacheOp> {
    let put = (0u8..6, 0usize..8, 0u64..5, 0u64..20)
        .prop_map(|(key, n_bytes, created, expires)| CacheOp::Put { key, n_bytes, created, expires });
    prop_oneof![8 => put, 6 => (0u8..6).prop_map(CacheOp::Get), 1 => Just(CacheOp::Clear)]
}

async fn run_cache_ops(engine: Engine, ops: &[(u64, CacheOp)]) -> Vec<Option<CachedResult>> {
    let cache = engine.cache(CacheLimits { max_entries: 3, max_bytes: 12, max_entry_bytes: 6 });
    let mut answers = Vec::new();
    let mut seconds = 0;
    for (passed, op) in ops {
        seconds += passed;
        let now = at(seconds);
        match *op {
            CacheOp::Get(key) => answers.push(cache.get(CacheKey([key; 32]), now).await.unwrap()),
            CacheOp::Put { key, n_bytes, created, expires } => {
                let body = Bytes::from(vec![key; n_bytes]);
                let answer = CachedResult {
                    body,
                    tool: String::new(),
                    created: at(seconds + created),
                    expires: at(seconds + expires),
                };
                cache.put(CacheKey([key; 32]), answer, now).await.unwrap();
            }
            CacheOp::Clear => cache.clear().await.unwrap(),
        }
    }
    answers
}

/// An operation on sessions: id, time of use and expiry in seconds relative to the operation.
#[derive(Clone, Debug)]
enum SessionOp {
    Get(u8),
    Put(u8, u64, u64),
    Create(u8, u64, u64),
    Find(u8),
    Bind(u8, u8),
    Remove(u8),
    List(usize),
}

fn session_op() -> impl Strategy<Value = SessionOp> {
    let kept = (0u8..5, 0u64..5, 0u64..20);
    prop_oneof![
        2 => (0u8..5).prop_map(SessionOp::Get),
        3 => kept.clone().prop_map(|(id, used, expires)| SessionOp::Put(id, used, expires)),
        3 => kept.prop_map(|(id, used, expires)| SessionOp::Create(id, used, expires)),
        3 => (0u8..4).prop_map(SessionOp::Find),
        4 => (0u8..4, 0u8..5).prop_map(|(name, id)| SessionOp::Bind(name, id)),
        1 => (0u8..5).prop_map(SessionOp::Remove),
        2 => (0usize..5).prop_map(SessionOp::List),
    ]
}

/// The result of an operation.
#[derive(Debug, PartialEq)]
enum OpResult {
    Sessions(Vec<SessionRecord>),
    Flag(bool),
    Bound(Result<String, StoreError>),
}

fn session(id: u8, used: u64, expires: u64) -> SessionRecord {
    SessionRecord {
        id: id.to_string(),
        name: format!("{used}"),
        owner: Owner::local(),
        workspace: None,
        created: SystemTime::UNIX_EPOCH,
        used: at(used),
        expires: at(expires),
    }
}

fn handle(name: u8) -> SessionHandle {
    SessionHandle { owner: Owner::local(), workspace: String::new(), name: name.to_string() }
}

async fn run_session_ops(engine: Engine, ops: &[(u64, SessionOp)]) -> Vec<OpResult> {
    let sessions = engine.sessions(SessionLimits { max_sessions: 3, max_handles: 2 });
    let mut results = Vec::new();
    let mut seconds = 0;
    for (passed, op) in ops {
        seconds += passed;
        let now = at(seconds);
        results.push(match *op {
            SessionOp::Get(id) => OpResult::Sessions(
                sessions.get(Owner::local(), id.to_string(), now).await.unwrap().into_iter().collect(),
            ),
            SessionOp::Put(id, used, expires) => {
                sessions.put(session(id, seconds + used, seconds + expires), now).await.unwrap();
                OpResult::Flag(true)
            }
            SessionOp::Create(id, used, expires) => OpResult::Flag(
                sessions.create(session(id, seconds + used, seconds + expires), now).await.unwrap(),
            ),
            SessionOp::Find(name) => {
                OpResult::Sessions(sessions.find(handle(name), now).await.unwrap().into_iter().collect())
            }
            SessionOp::Bind(name, id) => {
                OpResult::Bound(sessions.bind(handle(name), id.to_string(), now).await)
            }
            SessionOp::Remove(id) => {
                OpResult::Flag(sessions.remove(Owner::local(), id.to_string()).await.unwrap())
            }
            SessionOp::List(limit) => {
                OpResult::Sessions(sessions.list(OwnerScope::All, limit, now).await.unwrap())
            }
        });
    }
    results
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_caches_answer_alike(ops in prop::collection::vec((0u64..4, cache_op()), 1..60)) {
        let runtime = Builder::new_current_thread().build().unwrap();
        let memory = runtime.block_on(run_cache_ops(Engine::Memory, &ops));
        let sqlite = runtime.block_on(run_cache_ops(Engine::sqlite(), &ops));
        prop_assert_eq!(memory, sqlite);
    }

    #[test]
    fn both_session_stores_answer_alike(ops in prop::collection::vec((0u64..4, session_op()), 1..60)) {
        let runtime = Builder::new_current_thread().build().unwrap();
        let memory = runtime.block_on(run_session_ops(Engine::Memory, &ops));
        let sqlite = runtime.block_on(run_session_ops(Engine::sqlite(), &ops));
        prop_assert_eq!(memory, sqlite);
    }
}
