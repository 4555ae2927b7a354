//! What a server offered when it was last there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{Provider, ServerState};
use pegboard_core::store::{CatalogueStore, StoreError, Stored};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::stage::{Act, ERAS, Stage, Start, become_true, line, names, settle};

/// A store that counts, and may be out of order.
#[derive(Default)]
struct Notebook {
    pages: Mutex<HashMap<String, Bytes>>,
    saved: Mutex<Vec<SystemTime>>,
    is_broken: bool,
}

impl Notebook {
    fn n_saved(&self) -> usize {
        self.saved.lock().unwrap().len()
    }

    fn refuse(&self) -> Result<(), StoreError> {
        if self.is_broken { Err(StoreError::Failed { reason: "torn".to_owned() }) } else { Ok(()) }
    }
}

impl CatalogueStore for Notebook {
    fn load(&self, fingerprint: String) -> Stored<'_, Option<Bytes>> {
        async move {
            self.refuse()?;
            Ok(self.pages.lock().unwrap().get(&fingerprint).cloned())
        }
        .boxed()
    }

    fn save(&self, fingerprint: String, offer: Bytes, now: SystemTime) -> Stored<'_, ()> {
        async move {
            self.saved.lock().unwrap().push(now);
            self.refuse()?;
            self.pages.lock().unwrap().insert(fingerprint, offer);
            Ok(())
        }
        .boxed()
    }
}

fn rich() -> Stage {
    let stage = Stage::new();
    stage.can("prompts", json!({"listChanged": true}));
    stage.on("prompts/list", Act::say(&json!({"prompts": [{"name": "greet"}]})));
    stage
}

/// What the store holds after a server was there.
async fn filled(stage: &Stage) -> Arc<Notebook> {
    let notebook = Arc::new(Notebook::default());
    let server = stage.provider(ERAS[0]);
    server.recall(notebook.clone(), SystemTime::UNIX_EPOCH).await;
    server.open().await.unwrap();
    settle().await;
    server.shut_down().await;
    assert_eq!(notebook.n_saved(), 1);
    notebook
}

#[tokio::test(start_paused = true)]
async fn what_a_server_offered_is_there_at_once_and_fresh_when_it_answers() {
    for era in ERAS {
        let stage = rich();
        let notebook = filled(&stage).await;
        let (begun, n_started) = (Instant::now(), stage.n_started());
        stage.next_starts([Start::Hang]);
        let server = stage.provider(era);
        server.recall(notebook, SystemTime::UNIX_EPOCH).await;
        let last_known = server.offer().borrow().clone();
        assert_eq!((names(&last_known).len(), last_known.prompts.len(), last_known.is_stale), (9, 1, true));
        assert_eq!(last_known.fingerprint, server.settings().fingerprint());
        assert_eq!(
            last_known.instructions.as_deref(),
            Some("Break a leg.\n\nPrompts of this server:\n- greet")
        );
        assert!(last_known.warnings.is_empty());
        assert_eq!((begun.elapsed(), stage.n_started()), (Duration::ZERO, n_started), "nobody used it yet");

        server.open().await.unwrap_err();
        assert!(server.offer().borrow().is_stale, "the last known is better than nothing");
        become_true(server.state(), |state| *state == ServerState::Ready).await;
        let fresh = server.offer().borrow().clone();
        assert_eq!((names(&fresh), fresh.is_stale), (names(&last_known), false));
        assert!(Arc::ptr_eq(&fresh.tools[0], &last_known.tools[0]), "it is the same tool");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_tool_starts_its_server_which_decides() {
    for era in ERAS {
        let stage = rich();
        let notebook = filled(&stage).await;
        let server = stage.provider(era);
        server.recall(notebook, SystemTime::UNIX_EPOCH).await;
        stage.list(&["fail"]);
        let gone = server.offer().borrow().tools[0].clone();
        assert_eq!(line(&server, "echo").await, "{}", "it is not listed any more, and still there");
        assert_eq!(names(&server.offer().borrow()), ["fail"]);
        assert_eq!(gone.name(), "echo");
    }
}

#[tokio::test(start_paused = true)]
async fn another_server_sees_nothing_of_it() {
    let stage = rich();
    let notebook = filled(&stage).await;
    let other = stage.provider_with(ERAS[0], |settings| settings.name = ServerName::new("other").unwrap());
    other.recall(notebook, SystemTime::UNIX_EPOCH).await;
    assert!(other.offer().borrow().tools.is_empty());
    assert!(!other.offer().borrow().is_stale);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_not_known() {
    let stage = rich();
    let notebook = filled(&stage).await;
    let server = stage.provider(ERAS[0]);
    let fingerprint = server.settings().fingerprint();
    let good: Value = serde_json::from_slice(&notebook.pages.lock().unwrap()[&fingerprint]).unwrap();
    let mut newer = good.clone();
    newer["version"] = json!(2);
    let mut without = good.clone();
    without.as_object_mut().unwrap().remove("tools");
    for garbage in [String::new(), "{".to_owned(), "[]".to_owned(), newer.to_string(), without.to_string()] {
        notebook.pages.lock().unwrap().insert(fingerprint.clone(), garbage.clone().into());
        let server = stage.provider(ERAS[0]);
        server.recall(notebook.clone(), SystemTime::UNIX_EPOCH).await;
        let offer = server.offer().borrow().clone();
        assert_eq!((offer.tools.len(), offer.is_stale, offer.warnings.len()), (0, false, 0), "{garbage}");
        server.open().await.unwrap();
        assert_eq!(server.offer().borrow().tools.len(), 9);
    }
    // A part that makes no sense costs nothing but itself.
    let mut odd = good;
    odd["tools"] = json!([5, {"name": "good"}, {"name": "good"}]);
    notebook.pages.lock().unwrap().insert(fingerprint, odd.to_string().into());
    server.recall(notebook, SystemTime::UNIX_EPOCH).await;
    let offer = server.offer().borrow().clone();
    assert_eq!((names(&offer), offer.is_stale, offer.warnings.len()), (vec!["good".to_owned()], true, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_fresh_is_never_replaced_by_what_was() {
    let stage = rich();
    let notebook = filled(&stage).await;
    stage.list(&["new"]);
    let server = stage.opened(ERAS[0]).await;
    settle().await;
    server.recall(notebook.clone(), SystemTime::UNIX_EPOCH).await;
    assert_eq!(names(&server.offer().borrow()), ["new"]);
    assert!(!server.offer().borrow().is_stale);
    server.shut_down().await;
    let saved = String::from_utf8(notebook.pages.lock().unwrap().values().next().unwrap().to_vec()).unwrap();
    assert!(saved.contains("\"new\"") && !saved.contains("\"echo\""), "{saved}");
}

#[tokio::test(start_paused = true)]
async fn many_changes_are_saved_once_and_no_change_never() {
    let stage = rich();
    let notebook = Arc::new(Notebook::default());
    let server = stage.provider(ERAS[0]);
    let began = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
    server.recall(notebook.clone(), began).await;
    server.open().await.unwrap();
    time::sleep(Duration::from_secs(10)).await;
    assert_eq!(*notebook.saved.lock().unwrap(), [began + Duration::from_secs(1)]);
    for _ in 0..3 {
        stage.change();
        time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(notebook.n_saved(), 1);
    stage.list(&["new"]);
    stage.change();
    time::sleep(Duration::from_secs(30)).await;
    assert_eq!(notebook.n_saved(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_out_of_order_is_no_problem_of_the_server() {
    let stage = rich();
    let notebook = Arc::new(Notebook { is_broken: true, ..Notebook::default() });
    let server = stage.provider(ERAS[0]);
    server.recall(notebook.clone(), SystemTime::UNIX_EPOCH).await;
    server.open().await.unwrap();
    time::sleep(Duration::from_secs(10)).await;
    assert_eq!((line(&server, "echo").await.as_str(), notebook.n_saved()), ("{}", 1));
    assert!(server.offer().borrow().warnings.is_empty());
}
