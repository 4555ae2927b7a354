//! What servers offered when they were last there.

use bytes::Bytes;
use pegboard_core::store::CatalogueStore;
use pegboard_stores::limits::CatalogueLimits;

use crate::engine::{Engine, at, on_every_engine};

on_every_engine!(
    what_a_server_offered_is_there_for_that_server,
    a_newer_offer_takes_the_place_of_the_one_before_it,
    the_oldest_offers_go_when_there_are_too_many,
    the_oldest_offers_go_when_they_are_too_large_together,
    an_offer_that_is_too_large_by_itself_is_not_kept,
    an_offer_comes_back_as_it_was,
);

/// What is kept of the servers, in this order.
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

async fn what_a_server_offered_is_there_for_that_server(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits::default());
    save(&*catalogue, "a", "tools", 0).await;
    assert_eq!(offers(&*catalogue, &["a", "A", ""]).await, "tools - -");
}

async fn a_newer_offer_takes_the_place_of_the_one_before_it(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits { max_entries: 2, ..CatalogueLimits::default() });
    for (server, offer, second) in [("a", "one", 0), ("b", "two", 1), ("a", "three", 2), ("c", "four", 3)] {
        save(&*catalogue, server, offer, second).await;
    }
    assert_eq!(offers(&*catalogue, &["a", "b", "c"]).await, "three - four");
}

async fn the_oldest_offers_go_when_there_are_too_many(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits { max_entries: 2, ..CatalogueLimits::default() });
    // The age of an offer is when it was made and not when it came here.
    for (server, second) in [("a", 3), ("b", 1), ("c", 2)] {
        save(&*catalogue, server, server, second).await;
    }
    assert_eq!(offers(&*catalogue, &["a", "b", "c"]).await, "a - c");
}

async fn the_oldest_offers_go_when_they_are_too_large_together(engine: Engine) {
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

async fn an_offer_that_is_too_large_by_itself_is_not_kept(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits { max_bytes: 4, ..CatalogueLimits::default() });
    save(&*catalogue, "a", "aaa", 0).await;
    save(&*catalogue, "a", "aaaa", 1).await;
    assert_eq!(offers(&*catalogue, &["a"]).await, "-");
}

async fn an_offer_comes_back_as_it_was(engine: Engine) {
    let catalogue = engine.catalogue(CatalogueLimits::default());
    let servers = ["", "f00d", "名前\u{0}\u{202e}", "'; DROP TABLE catalogue; --"];
    let bodies: [&[u8]; 4] = [b"", b"\x00\xff\xfe", b"text", &vec![0; 100_000]];
    for (server, body) in servers.into_iter().zip(bodies) {
        catalogue.save(server.to_owned(), Bytes::copy_from_slice(body), at(3)).await.unwrap();
        assert_eq!(catalogue.load(server.to_owned()).await.unwrap().as_deref(), Some(body));
    }
}
