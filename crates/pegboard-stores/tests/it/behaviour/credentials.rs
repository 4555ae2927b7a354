//! Credentials of principals.

use bytes::Bytes;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{CredentialKey, CredentialStore, StoreError};
use pegboard_stores::limits::CredentialLimits;

use crate::behaviour::engine::{Engine, at, on_every_engine};

on_every_engine!(
    a_credential_belongs_to_one_owner,
    a_newer_credential_replaces_the_previous_one,
    a_removed_credential_is_gone,
    a_full_store_refuses_new_credentials_and_keeps_the_others,
    an_oversized_credential_leaves_the_previous_one,
);

const SERVERS: [&str; 2] = ["https://a.example/mcp", "https://b.example/mcp"];

fn key(server: usize) -> CredentialKey {
    CredentialKey(SERVERS[server].to_owned())
}

async fn save(
    store: &dyn CredentialStore,
    owner: &str,
    server: usize,
    sealed: &str,
) -> Result<(), StoreError> {
    store.save(Owner::new(owner), key(server), Bytes::copy_from_slice(sealed.as_bytes()), at(0)).await
}

/// Returns the credentials of an owner, `-` for absent ones.
async fn credentials(store: &dyn CredentialStore, owner: &str) -> String {
    let mut found = Vec::new();
    for server in 0..SERVERS.len() {
        let sealed = store.load(Owner::new(owner), key(server)).await.unwrap();
        found.push(sealed.map_or("-".to_owned(), |sealed| String::from_utf8(sealed.to_vec()).unwrap()));
    }
    found.join(" ")
}

async fn a_credential_belongs_to_one_owner(engine: Engine) {
    let store = engine.credentials(CredentialLimits::default());
    save(&*store, "ann", 0, "one").await.unwrap();
    save(&*store, "bob", 1, "two").await.unwrap();
    assert_eq!(credentials(&*store, "ann").await, "one -");
    assert_eq!(credentials(&*store, "bob").await, "- two");
    assert_eq!(credentials(&*store, "local").await, "- -");

    let ann = (Owner::new("ann"), key(0));
    let bob = (Owner::new("bob"), key(1));
    for (scope, limit, expected) in [
        (OwnerScope::Only(Owner::new("ann")), 9, vec![ann.clone()]),
        (OwnerScope::All, 9, vec![ann.clone(), bob]),
        (OwnerScope::All, 1, vec![ann]),
    ] {
        assert_eq!(store.list(scope, limit).await.unwrap(), expected);
    }
}

async fn a_newer_credential_replaces_the_previous_one(engine: Engine) {
    let store = engine.credentials(CredentialLimits { max_per_owner: 1, ..CredentialLimits::default() });
    save(&*store, "ann", 0, "one").await.unwrap();
    save(&*store, "ann", 0, "two").await.unwrap();
    assert_eq!(credentials(&*store, "ann").await, "two -");
}

async fn a_removed_credential_is_gone(engine: Engine) {
    let store = engine.credentials(CredentialLimits { max_per_owner: 1, ..CredentialLimits::default() });
    save(&*store, "ann", 0, "one").await.unwrap();
    assert!(!store.remove(Owner::new("bob"), key(0)).await.unwrap());
    assert!(store.remove(Owner::new("ann"), key(0)).await.unwrap());
    assert!(!store.remove(Owner::new("ann"), key(0)).await.unwrap());
    save(&*store, "ann", 1, "two").await.unwrap();
    assert_eq!(credentials(&*store, "ann").await, "- two");
}

async fn a_full_store_refuses_new_credentials_and_keeps_the_others(engine: Engine) {
    let store = engine.credentials(CredentialLimits { max_per_owner: 1, ..CredentialLimits::default() });
    save(&*store, "ann", 0, "one").await.unwrap();
    let refused = save(&*store, "ann", 1, "two").await.unwrap_err();
    assert_eq!(refused.to_string(), "the store is full: the limit of 1 credentials is reached");
    assert_eq!(credentials(&*store, "ann").await, "one -");
    save(&*store, "bob", 1, "two").await.unwrap();
}

async fn an_oversized_credential_leaves_the_previous_one(engine: Engine) {
    let n_key = u64::try_from(SERVERS[0].len()).unwrap();
    let store =
        engine.credentials(CredentialLimits { max_entry_bytes: n_key + 3, ..CredentialLimits::default() });
    save(&*store, "ann", 0, "one").await.unwrap();
    let refused = save(&*store, "ann", 0, "three").await.unwrap_err();
    assert_eq!(refused.to_string(), "the store is full: a credential of 26 bytes exceeds the limit of 24");
    assert_eq!(credentials(&*store, "ann").await, "one -");
}
