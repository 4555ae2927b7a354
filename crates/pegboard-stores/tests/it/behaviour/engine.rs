//! The store engines under test, and a clock that tests set.

use std::time::{Duration, SystemTime};

use pegboard_core::store::{
    CacheStore, CatalogueStore, HistoryStore, OutputStore, SessionStore, SlotStore, TraceStore,
};
use pegboard_stores::limits::{
    CacheLimits, CatalogueLimits, DatabaseLimits, HistoryLimits, OutputLimits, SessionLimits, SlotLimits,
    TraceLimits,
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

    pub(crate) fn cache(&self, limits: CacheLimits) -> Box<dyn CacheStore> {
        match self {
            Self::Memory => Box::new(memory::MemoryCache::new(limits)),
            Self::Sqlite(directory) => {
                let limits = DatabaseLimits { cache: limits, ..DatabaseLimits::default() };
                Box::new(open(directory, limits))
            }
        }
    }

    pub(crate) fn catalogue(&self, limits: CatalogueLimits) -> Box<dyn CatalogueStore> {
        match self {
            Self::Memory => Box::new(memory::MemoryCatalogue::new(limits)),
            Self::Sqlite(directory) => {
                let limits = DatabaseLimits { catalogue: limits, ..DatabaseLimits::default() };
                Box::new(open(directory, limits))
            }
        }
    }

    pub(crate) fn history(&self, limits: HistoryLimits) -> Box<dyn HistoryStore> {
        match self {
            Self::Memory => Box::new(memory::MemoryHistory::new(limits)),
            Self::Sqlite(directory) => {
                let limits = DatabaseLimits { history: limits, ..DatabaseLimits::default() };
                Box::new(open(directory, limits))
            }
        }
    }

    pub(crate) fn outputs(&self, limits: OutputLimits) -> Box<dyn OutputStore> {
        match self {
            Self::Memory => Box::new(memory::MemoryOutputs::new(limits)),
            Self::Sqlite(directory) => {
                let limits = DatabaseLimits { outputs: limits, ..DatabaseLimits::default() };
                Box::new(open(directory, limits))
            }
        }
    }

    pub(crate) fn sessions(&self, limits: SessionLimits) -> Box<dyn SessionStore> {
        match self {
            Self::Memory => Box::new(memory::MemorySessions::new(limits)),
            Self::Sqlite(directory) => {
                let limits = DatabaseLimits { sessions: limits, ..DatabaseLimits::default() };
                Box::new(open(directory, limits))
            }
        }
    }

    pub(crate) fn traces(&self, limits: TraceLimits) -> Box<dyn TraceStore> {
        match self {
            Self::Memory => Box::new(memory::MemoryTraces::new(limits)),
            Self::Sqlite(directory) => {
                let limits = DatabaseLimits { traces: limits, ..DatabaseLimits::default() };
                Box::new(open(directory, limits))
            }
        }
    }

    pub(crate) fn slots(&self, limits: SlotLimits) -> Box<dyn SlotStore> {
        match self {
            Self::Memory => Box::new(memory::MemorySlots::new(limits)),
            Self::Sqlite(directory) => {
                let limits = DatabaseLimits { slots: limits, ..DatabaseLimits::default() };
                Box::new(open(directory, limits))
            }
        }
    }
}

fn open(directory: &TempDir, limits: DatabaseLimits) -> Database {
    Database::open_with(&directory.path().join("state.db"), limits).unwrap()
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
