//! Settings of the result cache.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const MIB: u64 = 1024 * 1024;

/// Storage and limits of the result cache. Lifetimes are set for servers and tools.
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
    /// Storage of the cache.
    pub backend: CacheBackend,
    /// Maximum number of results; the oldest are evicted.
    pub max_entries: u64,
    /// Maximum total size in bytes; the oldest are evicted.
    pub max_bytes: u64,
    /// Maximum size of one result in bytes; larger ones are not cached.
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

/// Storage of the result cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheBackend {
    /// In the state database, if there is one.
    #[default]
    Sqlite,
    /// In memory, lost when the program exits.
    Memory,
}
