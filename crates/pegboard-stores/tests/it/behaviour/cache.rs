//! Cached results.

use std::time::SystemTime;

use bytes::Bytes;
use pegboard_core::store::{CacheKey, CacheStore, CachedResult};
use pegboard_stores::limits::CacheLimits;

use crate::behaviour::engine::{Engine, at, on_every_engine};

on_every_engine!(
    an_answer_is_readable_until_it_expires,
    an_answer_replaces_the_previous_one,
    expired_answers_are_evicted_before_the_oldest,
    the_oldest_are_evicted_beyond_the_entry_limit,
    the_oldest_are_evicted_beyond_the_size_limit,
    an_oversized_answer_is_not_cached_and_removes_the_previous_one,
    an_already_expired_answer_removes_the_previous_one,
    clear_removes_every_answer,
    an_answer_round_trips,
);

fn key(number: u8) -> CacheKey {
    CacheKey([number; 32])
}

fn answer(body: &str, created: u64, expires: u64) -> CachedResult {
    let body = Bytes::copy_from_slice(body.as_bytes());
    CachedResult { body, tool: String::new(), created: at(created), expires: at(expires) }
}

/// Returns the bodies under the keys from 1 on, `-` for absent ones.
async fn bodies(cache: &dyn CacheStore, n_keys: u8, now: SystemTime) -> String {
    let mut bodies = Vec::new();
    for number in 1..=n_keys {
        let found = cache.get(key(number), now).await.unwrap();
        bodies.push(found.map_or("-".to_owned(), |found| String::from_utf8(found.body.to_vec()).unwrap()));
    }
    bodies.join(" ")
}

async fn an_answer_is_readable_until_it_expires(engine: Engine) {
    let cache = engine.cache(CacheLimits::default());
    cache.put(key(1), answer("a", 0, 10), at(0)).await.unwrap();
    for (now, expected) in [(0, "a"), (9, "a"), (10, "-"), (11, "-")] {
        assert_eq!(bodies(&*cache, 1, at(now)).await, expected, "at {now}");
    }
}

async fn an_answer_replaces_the_previous_one(engine: Engine) {
    let cache = engine.cache(CacheLimits { max_entries: 2, ..CacheLimits::default() });
    cache.put(key(1), answer("a", 0, 10), at(0)).await.unwrap();
    cache.put(key(2), answer("b", 1, 10), at(1)).await.unwrap();
    cache.put(key(1), answer("c", 2, 20), at(2)).await.unwrap();
    assert_eq!(bodies(&*cache, 2, at(2)).await, "c b");
    assert_eq!(bodies(&*cache, 2, at(10)).await, "c -");
}

async fn expired_answers_are_evicted_before_the_oldest(engine: Engine) {
    let cache = engine.cache(CacheLimits { max_entries: 2, ..CacheLimits::default() });
    cache.put(key(1), answer("old", 0, 100), at(0)).await.unwrap();
    cache.put(key(2), answer("short", 1, 5), at(1)).await.unwrap();
    cache.put(key(3), answer("new", 5, 100), at(5)).await.unwrap();
    assert_eq!(bodies(&*cache, 3, at(5)).await, "old - new");
}

async fn the_oldest_are_evicted_beyond_the_entry_limit(engine: Engine) {
    let cache = engine.cache(CacheLimits { max_entries: 2, ..CacheLimits::default() });
    // The age of an answer counts from its creation, not from its insertion.
    for (number, body, created) in [(1, "a", 3), (2, "b", 1), (3, "c", 2)] {
        cache.put(key(number), answer(body, created, 100), at(3)).await.unwrap();
    }
    assert_eq!(bodies(&*cache, 3, at(3)).await, "a - c");
    cache.put(key(4), answer("d", 4, 100), at(4)).await.unwrap();
    assert_eq!(bodies(&*cache, 4, at(4)).await, "a - - d");
}

async fn the_oldest_are_evicted_beyond_the_size_limit(engine: Engine) {
    let cache = engine.cache(CacheLimits { max_bytes: 10, ..CacheLimits::default() });
    for (number, body, expected) in [
        (1, "aaaa", "aaaa - - -"),
        (2, "bbbb", "aaaa bbbb - -"),
        (3, "cc", "aaaa bbbb cc -"),
        (4, "ddddd", "- - cc ddddd"),
    ] {
        cache.put(key(number), answer(body, u64::from(number), 100), at(5)).await.unwrap();
        assert_eq!(bodies(&*cache, 4, at(5)).await, expected);
    }
}

async fn an_oversized_answer_is_not_cached_and_removes_the_previous_one(engine: Engine) {
    let cache = engine.cache(CacheLimits { max_entry_bytes: 4, ..CacheLimits::default() });
    cache.put(key(1), answer("four", 0, 100), at(0)).await.unwrap();
    cache.put(key(2), answer("four", 0, 100), at(0)).await.unwrap();
    cache.put(key(1), answer("five!", 1, 100), at(1)).await.unwrap();
    assert_eq!(bodies(&*cache, 2, at(1)).await, "- four");
}

async fn an_already_expired_answer_removes_the_previous_one(engine: Engine) {
    let cache = engine.cache(CacheLimits::default());
    cache.put(key(1), answer("a", 0, 100), at(0)).await.unwrap();
    cache.put(key(1), answer("b", 1, 1), at(1)).await.unwrap();
    assert_eq!(bodies(&*cache, 1, at(0)).await, "-");
}

async fn clear_removes_every_answer(engine: Engine) {
    let cache = engine.cache(CacheLimits::default());
    cache.put(key(1), answer("a", 0, 100), at(0)).await.unwrap();
    cache.put(key(2), answer("b", 0, 100), at(0)).await.unwrap();
    cache.clear().await.unwrap();
    assert_eq!(bodies(&*cache, 2, at(0)).await, "- -");
    cache.put(key(1), answer("c", 0, 100), at(0)).await.unwrap();
    assert_eq!(bodies(&*cache, 2, at(0)).await, "c -");
}

async fn an_answer_round_trips(engine: Engine) {
    let cache = engine.cache(CacheLimits::default());
    let tools = ["", "search", "名前\u{0}\u{202e}", "'; DROP TABLE cache; --"];
    let bodies: [&[u8]; 4] = [b"", b"\x00\xff\xfe", b"text", &vec![0; 100_000]];
    for (tool, body) in tools.into_iter().zip(bodies) {
        let kept =
            CachedResult { tool: tool.to_owned(), body: Bytes::copy_from_slice(body), ..answer("", 3, 9) };
        cache.put(key(1), kept.clone(), at(3)).await.unwrap();
        assert_eq!(cache.get(key(1), at(3)).await.unwrap(), Some(kept));
    }
}
