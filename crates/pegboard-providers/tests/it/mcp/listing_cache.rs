//! Listings restored from a store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{Provider, ServerState};
use pegboard_core::store::{CatalogueStore, StoreError, StoreFuture};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::mcp::scripted::{
    ERAS, ScriptedReply, ScriptedServer, ScriptedStart, call_text, settle, tool_names, wait_until,
};

/// A store that counts saves and may fail.
#[derive(Default)]
struct TestStore {
    snapshots: Mutex<HashMap<String, Bytes>>,
    saved: Mutex<Vec<SystemTime>>,
    is_broken: bool,
}

impl TestStore {
    fn n_saved(&self) -> usize {
        self.saved.lock().unwrap().len()
    }

    fn refuse(&self) -> Result<(), StoreError> {
        if self.is_broken { Err(StoreError::Failed { reason: "torn".to_owned() }) } else { Ok(()) }
    }
}

impl CatalogueStore for TestStore {
    fn load(&self, fingerprint: String) -> StoreFuture<'_, Option<Bytes>> {
        async move {
            self.refuse()?;
            Ok(self.snapshots.lock().unwrap().get(&fingerprint).cloned())
        }
        .boxed()
    }

    fn save(&self, fingerprint: String, offering: Bytes, now: SystemTime) -> StoreFuture<'_, ()> {
        async move {
            self.saved.lock().unwrap().push(now);
            self.refuse()?;
            self.snapshots.lock().unwrap().insert(fingerprint, offering);
            Ok(())
        }
        .boxed()
    }
}

fn prompt_server() -> ScriptedServer {
    let scripted = ScriptedServer::new();
    scripted.add_capability("prompts", json!({"listChanged": true}));
    scripted.respond_to("prompts/list", ScriptedReply::json(&json!({"prompts": [{"name": "greet"}]})));
    scripted
}

/// Returns a store with the listing of a server that has run.
async fn filled_store(scripted: &ScriptedServer) -> Arc<TestStore> {
    let store = Arc::new(TestStore::default());
    let server = scripted.provider(ERAS[0]);
    server.cache_listing(store.clone(), SystemTime::UNIX_EPOCH).await;
    server.open().await.unwrap();
    settle().await;
    server.shut_down().await;
    assert_eq!(store.n_saved(), 1);
    store
}

#[tokio::test(start_paused = true)]
async fn the_cached_listing_is_available_at_once_and_replaced_after_the_start() {
    for era in ERAS {
        let scripted = prompt_server();
        let store = filled_store(&scripted).await;
        let (started_at, n_started) = (Instant::now(), scripted.n_started());
        scripted.next_starts([ScriptedStart::Hang]);
        let server = scripted.provider(era);
        server.cache_listing(store, SystemTime::UNIX_EPOCH).await;
        let last_known = server.offering().borrow().clone();
        assert_eq!(
            (tool_names(&last_known).len(), last_known.prompts.len(), last_known.is_stale),
            (9, 1, true)
        );
        assert_eq!(last_known.fingerprint, server.settings().fingerprint());
        assert_eq!(
            last_known.instructions.as_deref(),
            Some("Break a leg.\n\nPrompts of this server:\n- greet")
        );
        assert!(last_known.warnings.is_empty());
        assert_eq!((started_at.elapsed(), scripted.n_started()), (Duration::ZERO, n_started), "not used yet");

        server.open().await.unwrap_err();
        assert!(server.offering().borrow().is_stale, "the last known is better than nothing");
        wait_until(server.state(), |state| *state == ServerState::Ready).await;
        let fresh = server.offering().borrow().clone();
        assert_eq!((tool_names(&fresh), fresh.is_stale), (tool_names(&last_known), false));
        assert!(Arc::ptr_eq(&fresh.tools[0], &last_known.tools[0]), "it is the same tool");
    }
}

#[tokio::test(start_paused = true)]
async fn known_lists_stay_known_while_they_are_read_again() {
    for era in ERAS {
        let scripted = prompt_server();
        let store = filled_store(&scripted).await;
        scripted.respond_to("prompts/list", ScriptedReply::Hang);
        for (known, expected) in [(None, (true, 0)), (Some(store), (false, 1))] {
            let server = scripted.provider(era);
            if let Some(store) = known {
                server.cache_listing(store, SystemTime::UNIX_EPOCH).await;
            }
            server.open().await.unwrap();
            settle().await;
            let offering = server.offering().borrow().clone();
            assert_eq!((offering.is_partial, offering.prompts.len()), expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calling_a_stale_tool_starts_the_server() {
    for era in ERAS {
        let scripted = prompt_server();
        let store = filled_store(&scripted).await;
        let server = scripted.provider(era);
        server.cache_listing(store, SystemTime::UNIX_EPOCH).await;
        scripted.set_tools(&["fail"]);
        let removed = server.offering().borrow().tools[0].clone();
        assert_eq!(call_text(&server, "echo").await, "{}", "not listed any more, but still callable");
        assert_eq!(tool_names(&server.offering().borrow()), ["fail"]);
        assert_eq!(removed.name(), "echo");
    }
}

#[tokio::test(start_paused = true)]
async fn the_cached_listing_is_not_used_for_another_server() {
    let scripted = prompt_server();
    let store = filled_store(&scripted).await;
    let other = scripted.provider_with(ERAS[0], |settings| settings.name = ServerName::new("other").unwrap());
    other.cache_listing(store, SystemTime::UNIX_EPOCH).await;
    assert!(other.offering().borrow().tools.is_empty());
    assert!(!other.offering().borrow().is_stale);
}

#[tokio::test(start_paused = true)]
async fn unreadable_snapshots_are_ignored() {
    let scripted = prompt_server();
    let store = filled_store(&scripted).await;
    let server = scripted.provider(ERAS[0]);
    let fingerprint = server.settings().fingerprint();
    let good: Value = serde_json::from_slice(&store.snapshots.lock().unwrap()[&fingerprint]).unwrap();
    let mut newer = good.clone();
    newer["version"] = json!(2);
    let mut without_tools = good.clone();
    without_tools.as_object_mut().unwrap().remove("tools");
    for garbage in
        [String::new(), "{".to_owned(), "[]".to_owned(), newer.to_string(), without_tools.to_string()]
    {
        store.snapshots.lock().unwrap().insert(fingerprint.clone(), garbage.clone().into());
        let server = scripted.provider(ERAS[0]);
        server.cache_listing(store.clone(), SystemTime::UNIX_EPOCH).await;
        let offering = server.offering().borrow().clone();
        assert_eq!(
            (offering.tools.len(), offering.is_stale, offering.warnings.len()),
            (0, false, 0),
            "{garbage}"
        );
        server.open().await.unwrap();
        assert_eq!(server.offering().borrow().tools.len(), 9);
        // Its listing is saved before the next snapshot is.
        server.shut_down().await;
    }
    // An invalid entry is skipped without affecting the others.
    let mut partly_invalid = good;
    partly_invalid["tools"] = json!([5, {"name": "good"}, {"name": "good"}]);
    store.snapshots.lock().unwrap().insert(fingerprint, partly_invalid.to_string().into());
    server.cache_listing(store, SystemTime::UNIX_EPOCH).await;
    let offering = server.offering().borrow().clone();
    assert_eq!(
        (tool_names(&offering), offering.is_stale, offering.warnings.len()),
        (vec!["good".to_owned()], true, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_fresh_listing_is_never_replaced_by_a_snapshot() {
    let scripted = prompt_server();
    let store = filled_store(&scripted).await;
    scripted.set_tools(&["new"]);
    let server = scripted.open_provider(ERAS[0]).await;
    settle().await;
    server.cache_listing(store.clone(), SystemTime::UNIX_EPOCH).await;
    assert_eq!(tool_names(&server.offering().borrow()), ["new"]);
    assert!(!server.offering().borrow().is_stale);
    server.shut_down().await;
    let saved = String::from_utf8(store.snapshots.lock().unwrap().values().next().unwrap().to_vec()).unwrap();
    assert!(saved.contains("\"new\"") && !saved.contains("\"echo\""), "{saved}");
}

#[tokio::test(start_paused = true)]
async fn changes_are_debounced_and_equal_listings_not_saved() {
    let scripted = prompt_server();
    let store = Arc::new(TestStore::default());
    let server = scripted.provider(ERAS[0]);
    let began = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
    server.cache_listing(store.clone(), began).await;
    server.open().await.unwrap();
    time::sleep(Duration::from_secs(10)).await;
    assert_eq!(*store.saved.lock().unwrap(), [began + Duration::from_secs(1)]);
    for _ in 0..3 {
        scripted.notify_tools_changed();
        time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(store.n_saved(), 1);
    scripted.set_tools(&["new"]);
    scripted.notify_tools_changed();
    time::sleep(Duration::from_secs(30)).await;
    assert_eq!(store.n_saved(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_broken_store_does_not_affect_the_server() {
    let scripted = prompt_server();
    let store = Arc::new(TestStore { is_broken: true, ..TestStore::default() });
    let server = scripted.provider(ERAS[0]);
    server.cache_listing(store.clone(), SystemTime::UNIX_EPOCH).await;
    server.open().await.unwrap();
    time::sleep(Duration::from_secs(10)).await;
    assert_eq!((call_text(&server, "echo").await.as_str(), store.n_saved()), ("{}", 1));
    assert!(server.offering().borrow().warnings.is_empty());
}
