//! Last known listings of servers.

use bytes::Bytes;
use pegboard_core::store::CatalogueStore;
use pegboard_stores::limits::CatalogueLimits;

use crate::behaviour::engine::{Engine, at, on_every_engine};

on_every_engine!(
    a_listing_is_found_by_its_server,
    a_newer_listing_replaces_the_previous_one,
    the_oldest_listings_are_evicted_beyond_the_entry_limit,
    the_oldest_listings_are_evicted_beyond_the_size_limit,
    an_oversized_listing_is_not_stored,
    a_listing_round_trips,
);

/// Returns the listings of these servers, `-` for absent ones.
async fn offers(catalogue: &dyn CatalogueStore, servers: &[&str]) -> String {
    let mut offers = Vec::new();
    for server in servers {
        let found = catalogue.load((*server).to_owned()).await.unwrap();
        offers.push(found.map_or("-".to_owned(), |offer| String::from_utf8(offer.to_vec()).unwrap()));
    }
    offers.join(" ")
}

async fn save(catalogue: &dyn CatalogueStore, server: &str, offer: &str, second: u64) {
    catalogue.save(server.to_owned(), Bytes::copy_from_slice(offer.as_bytes()), at(second)).await.unwrap();
}

async fn a_listing_is_found_by_its_server(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits::default());
    save(&*catalogue, "a", "tools", 0).await;
    assert_eq!(offers(&*catalogue, &["a", "A", ""]).await, "tools - -");
}

async fn a_newer_listing_replaces_the_previous_one(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits { max_entries: 2, ..CatalogueLimits::default() });
    for (server, offer, second) in [("a", "one", 0), ("b", "two", 1), ("a", "three", 2), ("c", "four", 3)] {
        save(&*catalogue, server, offer, second).await;
    }
    assert_eq!(offers(&*catalogue, &["a", "b", "c"]).await, "three - four");
}

async fn the_oldest_listings_are_evicted_beyond_the_entry_limit(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits { max_entries: 2, ..CatalogueLimits::default() });
    // The age of a listing counts from its creation, not from its insertion.
    for (server, second) in [("a", 3), ("b", 1), ("c", 2)] {
        save(&*catalogue, server, server, second).await;
    }
    assert_eq!(offers(&*catalogue, &["a", "b", "c"]).await, "a - c");
}

async fn the_oldest_listings_are_evicted_beyond_the_size_limit(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits { max_bytes: 12, ..CatalogueLimits::default() });
    for (server, offer, second, expected) in [
        ("a", "aaaa", 0, "aaaa - -"),
        ("b", "bbbb", 1, "aaaa bbbb -"),
        ("c", "ccccc", 2, "- bbbb ccccc"),
        ("b", "b", 3, "- b ccccc"),
    ] {
        save(&*catalogue, server, offer, second).await;
        assert_eq!(offers(&*catalogue, &["a", "b", "c"]).await, expected);
    }
}

async fn an_oversized_listing_is_not_stored(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits { max_bytes: 4, ..CatalogueLimits::default() });
    save(&*catalogue, "a", "aaa", 0).await;
    save(&*catalogue, "a", "aaaa", 1).await;
    assert_eq!(offers(&*catalogue, &["a"]).await, "-");
}

async fn a_listing_round_trips(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits::default());
    let servers = ["", "f00d", "名前\u{0}\u{202e}", "'; DROP TABLE catalogue; --"];
    let bodies: [&[u8]; 4] = [b"", b"\x00\xff\xfe", b"text", &vec![0; 100_000]];
    for (server, body) in servers.into_iter().zip(bodies) {
        catalogue.save(server.to_owned(), Bytes::copy_from_slice(body), at(3)).await.unwrap();
        assert_eq!(catalogue.load(server.to_owned()).await.unwrap().as_deref(), Some(body));
    }
}
