//! The store engines under test, and a clock that tests set.

use std::time::{Duration, SystemTime};

use pegboard_core::store::{
    CacheStore, CatalogueStore, CredentialStore, OutputStore, SessionStore, SlotStore,
};
use pegboard_stores::limits::{
    CacheLimits, CatalogueLimits, CredentialLimits, DatabaseLimits, OutputLimits, SessionLimits, SlotLimits,
};
use pegboard_stores::memory;
use pegboard_stores::sqlite::Database;
use tempfile::TempDir;

/// A store engine. Its stores start empty.
pub(crate) enum Engine {
    Memory,
    /// Stores its file in this directory.
    Sqlite(TempDir),
}

impl Engine {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    /// Returns another engine of the same kind.
    pub(crate) fn other(&self) -> Self {
        match self {
            Self::Memory => Self::Memory,
            Self::Sqlite(_) => Self::sqlite(),
        }
    }

    pub(crate) fn database(&self, limits: DatabaseLimits) -> Database {
        match self {
            Self::Memory => Database::in_memory_with(limits),
            Self::Sqlite(directory) => {
                Database::open_with(&directory.path().join("state.db"), limits).unwrap()
            }
        }
    }

    pub(crate) fn cache(&self, limits: CacheLimits) -> Box<dyn CacheStore> {
        match self {
            Self::Memory => Box::new(memory::MemoryCache::new(limits)),
            Self::Sqlite(_) => {
                Box::new(self.database(DatabaseLimits { cache: limits, ..DatabaseLimits::default() }))
            }
        }
    }

    pub(crate) fn slots(&self, limits: SlotLimits) -> Box<dyn SlotStore> {
        match self {
            Self::Memory => Box::new(memory::MemorySlots::new(limits)),
            Self::Sqlite(_) => {
                Box::new(self.database(DatabaseLimits { slots: limits, ..DatabaseLimits::default() }))
            }
        }
    }

    pub(crate) fn catalogue(&self, catalogue: CatalogueLimits) -> Box<dyn CatalogueStore> {
        Box::new(self.database(DatabaseLimits { catalogue, ..DatabaseLimits::default() }))
    }

    pub(crate) fn credentials(&self, credentials: CredentialLimits) -> Box<dyn CredentialStore> {
        Box::new(self.database(DatabaseLimits { credentials, ..DatabaseLimits::default() }))
    }

    pub(crate) fn outputs(&self, outputs: OutputLimits) -> Box<dyn OutputStore> {
        Box::new(self.database(DatabaseLimits { outputs, ..DatabaseLimits::default() }))
    }

    pub(crate) fn sessions(&self, sessions: SessionLimits) -> Box<dyn SessionStore> {
        Box::new(self.database(DatabaseLimits { sessions, ..DatabaseLimits::default() }))
    }
}

/// Returns the time this many seconds into the test.
pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

/// Runs each test on each engine.
macro_rules! on_every_engine {
    ($($behaviour:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour($crate::behaviour::engine::Engine::Memory).await;
            })+
        }

        mod sqlite {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour($crate::behaviour::engine::Engine::sqlite()).await;
            })+
        }
    };
}
pub(crate) use on_every_engine;
