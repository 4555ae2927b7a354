//! Both engines give the same answers, whatever they are asked.

use std::time::SystemTime;

use bytes::Bytes;
use pegboard_core::store::{CacheKey, CachedAnswer, SessionHandle, SessionRecord, StoreError};
use pegboard_stores::limits::{CacheLimits, SessionLimits};
use proptest::prelude::*;
use tokio::runtime::Builder;

use crate::engine::{Engine, at};

/// Something done to a cache. Moments are seconds from the one in which it is done, and few, so that they meet.
#[derive(Clone, Debug)]
enum CacheMove {
    Get(u8),
    Put { key: u8, n_bytes: usize, made: u64, expires: u64 },
    Clear,
}

fn cache_move() -> impl Strategy<Value = CacheMove> {
    let put = (0u8..6, 0usize..8, 0u64..5, 0u64..20)
        .prop_map(|(key, n_bytes, made, expires)| CacheMove::Put { key, n_bytes, made, expires });
    prop_oneof![8 => put, 6 => (0u8..6).prop_map(CacheMove::Get), 1 => Just(CacheMove::Clear)]
}

async fn play_cache(engine: Engine, moves: &[(u64, CacheMove)]) -> Vec<Option<CachedAnswer>> {
    let cache = engine.cache(CacheLimits { max_entries: 3, max_bytes: 12, max_entry_bytes: 6 });
    let mut answers = Vec::new();
    let mut seconds = 0;
    for (passed, played) in moves {
        seconds += passed;
        let now = at(seconds);
        match *played {
            CacheMove::Get(key) => answers.push(cache.get(CacheKey([key; 32]), now).await.unwrap()),
            CacheMove::Put { key, n_bytes, made, expires } => {
                let body = Bytes::from(vec![key; n_bytes]);
                let answer = CachedAnswer {
                    body,
                    tool: String::new(),
                    made: at(seconds + made),
                    expires: at(seconds + expires),
                };
                cache.put(CacheKey([key; 32]), answer, now).await.unwrap();
            }
            CacheMove::Clear => cache.clear().await.unwrap(),
        }
    }
    answers
}

/// Something done to sessions: which, used when, and until when it is kept, in seconds from that moment.
#[derive(Clone, Debug)]
enum SessionMove {
    Get(u8),
    Put(u8, u64, u64),
    Create(u8, u64, u64),
    Find(u8),
    Bind(u8, u8),
    Remove(u8),
    List(usize),
}

fn session_move() -> impl Strategy<Value = SessionMove> {
    let kept = (0u8..5, 0u64..5, 0u64..20);
    prop_oneof![
        2 => (0u8..5).prop_map(SessionMove::Get),
        3 => kept.clone().prop_map(|(id, used, expires)| SessionMove::Put(id, used, expires)),
        3 => kept.prop_map(|(id, used, expires)| SessionMove::Create(id, used, expires)),
        3 => (0u8..4).prop_map(SessionMove::Find),
        4 => (0u8..4, 0u8..5).prop_map(|(name, id)| SessionMove::Bind(name, id)),
        1 => (0u8..5).prop_map(SessionMove::Remove),
        2 => (0usize..5).prop_map(SessionMove::List),
    ]
}

/// What came of a move.
#[derive(Debug, PartialEq)]
enum Came {
    Sessions(Vec<SessionRecord>),
    Whether(bool),
    Bound(Result<String, StoreError>),
}

fn session(id: u8, used: u64, expires: u64) -> SessionRecord {
    SessionRecord {
        id: id.to_string(),
        name: format!("{used}"),
        principal: String::new(),
        workspace: None,
        created: SystemTime::UNIX_EPOCH,
        used: at(used),
        expires: at(expires),
    }
}

fn handle(name: u8) -> SessionHandle {
    SessionHandle { principal: String::new(), workspace: String::new(), name: name.to_string() }
}

async fn play_sessions(engine: Engine, moves: &[(u64, SessionMove)]) -> Vec<Came> {
    let sessions = engine.sessions(SessionLimits { max_sessions: 3, max_handles: 2 });
    let mut came = Vec::new();
    let mut seconds = 0;
    for (passed, played) in moves {
        seconds += passed;
        let now = at(seconds);
        came.push(match *played {
            SessionMove::Get(id) => {
                Came::Sessions(sessions.get(id.to_string(), now).await.unwrap().into_iter().collect())
            }
            SessionMove::Put(id, used, expires) => {
                sessions.put(session(id, seconds + used, seconds + expires), now).await.unwrap();
                Came::Whether(true)
            }
            SessionMove::Create(id, used, expires) => Came::Whether(
                sessions.create(session(id, seconds + used, seconds + expires), now).await.unwrap(),
            ),
            SessionMove::Find(name) => {
                Came::Sessions(sessions.find(handle(name), now).await.unwrap().into_iter().collect())
            }
            SessionMove::Bind(name, id) => {
                Came::Bound(sessions.bind(handle(name), id.to_string(), now).await)
            }
            SessionMove::Remove(id) => Came::Whether(sessions.remove(id.to_string()).await.unwrap()),
            SessionMove::List(n_most) => Came::Sessions(sessions.list(n_most, now).await.unwrap()),
        });
    }
    came
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_caches_answer_alike(moves in prop::collection::vec((0u64..4, cache_move()), 1..60)) {
        let runtime = Builder::new_current_thread().build().unwrap();
        let memory = runtime.block_on(play_cache(Engine::Memory, &moves));
        let sqlite = runtime.block_on(play_cache(Engine::sqlite(), &moves));
        prop_assert_eq!(memory, sqlite);
    }

    #[test]
    fn both_session_stores_answer_alike(moves in prop::collection::vec((0u64..4, session_move()), 1..60)) {
        let runtime = Builder::new_current_thread().build().unwrap();
        let memory = runtime.block_on(play_sessions(Engine::Memory, &moves));
        let sqlite = runtime.block_on(play_sessions(Engine::sqlite(), &moves));
        prop_assert_eq!(memory, sqlite);
    }
}
