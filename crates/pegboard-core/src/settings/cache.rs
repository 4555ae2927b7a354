//! What the operator may set about the cache that all tools share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const MIB: u64 = 1024 * 1024;

/// Where answers are kept that may be given again, and how many. How long each may be given is said of servers and
/// tools.
///
/// ```
/// use pegboard_core::settings::cache::{CacheBackend, CacheSettings};
///
/// let settings: CacheSettings = serde_json::from_str(r#"{"backend": "memory", "maxEntries": 100}"#).unwrap();
/// assert_eq!((settings.backend, settings.max_entries), (CacheBackend::Memory, 100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CacheSettings {
    /// Where they are kept.
    pub backend: CacheBackend,
    /// How many answers are kept; beyond it the oldest go.
    pub max_entries: u64,
    /// How many bytes they may be together; beyond it the oldest go.
    pub max_bytes: u64,
    /// How many bytes one may be; a larger one is not kept.
    pub max_entry_bytes: u64,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            backend: CacheBackend::default(),
            max_entries: 5_000,
            max_bytes: 64 * MIB,
            max_entry_bytes: 8 * MIB,
        }
    }
}

/// Where answers are kept that may be given again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheBackend {
    /// In the database with all other state, as long as there is one.
    #[default]
    Sqlite,
    /// In memory, so that they are gone when the program ends.
    Memory,
}
