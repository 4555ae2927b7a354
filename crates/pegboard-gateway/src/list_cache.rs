//! Encoded results of list requests.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use pegboard_core::id::ToolboxName;
use pegboard_core::settings::gateway::Expose;
use pegboard_json::RawJson;
use pegboard_wire::era::{Era, meta};

use crate::profile_service::SERVER_INFO;

/// Maximum number of results kept, and of their bytes; any more are encoded for each request.
const MAX_RESULTS: usize = 64;
const MAX_BYTES: usize = 256 << 20;

/// Encoded results of list requests, for one view of a catalogue snapshot. Clients that see the same list
/// share them.
#[derive(Default)]
pub(crate) struct ListCache(Mutex<HashMap<ListKey, RawJson>>);

/// Key of a result among those of one view and one snapshot.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ListKey {
    /// Member of the result that holds the list.
    pub(crate) member: &'static str,
    /// Content of the list.
    pub(crate) content: ListContent,
    /// Fields that the client's era requires.
    pub(crate) era_fields: EraFields,
}

/// Parts of a result before it is encoded.
pub(crate) struct ListSource {
    /// The list.
    pub(crate) list: RawJson,
    /// Servers with a listing from a previous run.
    pub(crate) last_known: Vec<String>,
}

/// Field of `_meta` that names the servers with a listing from a previous run.
const LAST_KNOWN: &str = "pegboard/lastKnown";

/// Part of the catalogue that a list shows.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum ListContent {
    /// The tools of a surface.
    Tools {
        /// The surface.
        expose: Expose,
        /// `true` if `tool_output` is one of them.
        has_tool_output: bool,
    },
    /// Prompts, resources or templates of these toolboxes.
    OfToolboxes(Vec<ToolboxName>),
}

/// Fields of a result beside the list.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EraFields {
    /// None.
    Session,
    /// Cache hints, and the fields of every result.
    Stateless {
        /// Time for which the client may cache the list.
        ttl: Duration,
    },
}

impl EraFields {
    pub(crate) fn new(era: Era, ttl: Duration) -> Self {
        match era {
            Era::Session => Self::Session,
            Era::Stateless => Self::Stateless { ttl },
        }
    }
}

impl ListCache {
    /// Returns a result; encodes it on first use.
    pub(crate) fn get(&self, key: &ListKey, list: impl FnOnce() -> ListSource) -> RawJson {
        if let Some(result) = self.0.lock().get(key) {
            return result.clone();
        }
        // Encoded outside the lock: a long list must not delay the others.
        let result = key.encode(&list());
        let mut results = self.0.lock();
        let n_bytes: usize = results.values().map(|result| result.as_bytes().len()).sum();
        if results.len() < MAX_RESULTS && n_bytes + result.as_bytes().len() <= MAX_BYTES {
            results.insert(key.clone(), result.clone());
        }
        result
    }
}

impl ListKey {
    /// Encodes a result with all fields that the era requires, so that the wire layer passes it on as it is.
    fn encode(&self, ListSource { list, last_known }: &ListSource) -> RawJson {
        let last_known = (!last_known.is_empty()).then(|| RawJson::of(last_known));
        let last_known = last_known.as_ref().map(|servers| (LAST_KNOWN, servers));
        match self.era_fields {
            EraFields::Session => match last_known {
                None => RawJson::object(&[(self.member, list)]),
                Some(field) => RawJson::object(&[(self.member, list), ("_meta", &RawJson::object(&[field]))]),
            },
            EraFields::Stateless { ttl } => {
                let server_info: &RawJson = &SERVER_INFO;
                let fields: Vec<_> =
                    [(meta::SERVER_INFO, server_info)].into_iter().chain(last_known).collect();
                RawJson::object(&[
                    (self.member, list),
                    ("ttlMs", &RawJson::of(&ttl.as_millis())),
                    // Another client may see a different list.
                    ("cacheScope", &RawJson::of("private")),
                    ("resultType", &RawJson::of("complete")),
                    ("_meta", &RawJson::object(&fields)),
                ])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts_of(toolbox: &str, era: Era) -> ListKey {
        ListKey {
            member: "prompts",
            content: ListContent::OfToolboxes(vec![ToolboxName::new(toolbox).unwrap()]),
            era_fields: EraFields::new(era, Duration::from_secs(1)),
        }
    }

    fn numbers(n: usize) -> ListSource {
        ListSource { list: RawJson::of(&[n]), last_known: Vec::new() }
    }

    fn tools_of(expose: Expose, has_tool_output: bool) -> ListKey {
        let content = ListContent::Tools { expose, has_tool_output };
        ListKey { member: "tools", content, era_fields: EraFields::Session }
    }

    #[test]
    fn a_result_is_encoded_once_for_each_key() {
        let keys = [
            prompts_of("a", Era::Session),
            prompts_of("a", Era::Stateless),
            prompts_of("b", Era::Session),
            tools_of(Expose::Meta, false),
            tools_of(Expose::Meta, true),
            tools_of(Expose::Flat, false),
        ];
        let cache = ListCache::default();
        let first = keys.each_ref().map(|key| cache.get(key, || numbers(1)));
        for (key, first) in keys.iter().zip(first) {
            let again = cache.get(key, || panic!("it was encoded before"));
            assert_eq!(again.as_bytes().as_ptr(), first.as_bytes().as_ptr());
        }
    }

    #[test]
    fn a_result_has_the_fields_of_its_era() {
        let encoded = |era| prompts_of("a", era).encode(&numbers(1)).as_str().to_owned();
        assert_eq!(encoded(Era::Session), r#"{"prompts":[1]}"#);
        let stateless = encoded(Era::Stateless);
        let (fields, info) = stateless.split_once("\"version\"").unwrap();
        insta::assert_snapshot!(fields, @r#"{"prompts":[1],"ttlMs":1000,"cacheScope":"private","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"pegboard","title":"Pegboard","#);
        assert!(info.ends_with("}}}"), "{info}");
    }

    #[test]
    fn a_list_of_a_previous_run_names_its_servers() {
        let source = ListSource { last_known: vec!["t/files".to_owned()], ..numbers(1) };
        let encoded = |era| prompts_of("a", era).encode(&source).at(&["_meta", LAST_KNOWN]);
        for era in [Era::Session, Era::Stateless] {
            assert_eq!(encoded(era), Some(RawJson::of(&["t/files"])));
        }
    }

    #[test]
    fn results_beyond_the_limit_are_not_kept() {
        let cache = ListCache::default();
        for n in 0..MAX_RESULTS {
            cache.get(&prompts_of(&format!("t{n}"), Era::Session), || numbers(n));
        }
        let one_more = prompts_of("one-more", Era::Session);
        for n in 0..2 {
            assert_eq!(cache.get(&one_more, || numbers(n)).get("prompts"), Some(RawJson::of(&[n])));
        }
        cache.get(&prompts_of("t0", Era::Session), || panic!("it is kept"));
    }
}
