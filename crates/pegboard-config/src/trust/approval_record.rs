//! The record of what a gateway runs, for the next gateway of the same configuration.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::FileOwner;
use crate::edit::{self, WriteError};
use crate::private_file::create_private_dir;

/// Version of the record.
const VERSION: u32 = 1;
/// Maximum size of the record.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum number of records in a directory. The oldest ones are removed.
const MAX_RECORDS: usize = 1_000;

/// Digests of an approved configuration. It contains no paths and no values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRecord {
    version: u32,
    /// Digests that the user has approved.
    pub(super) approved: BTreeSet<String>,
    /// Digests of what the user has accepted for one use only: the actions of project files that are not trusted.
    pub(super) once: BTreeSet<String>,
}

impl Default for ApprovalRecord {
    fn default() -> Self {
        Self { version: VERSION, approved: BTreeSet::new(), once: BTreeSet::new() }
    }
}

impl ApprovalRecord {
    /// Reads a record; `None` if there is none. It must belong to the user, and no other user may write it.
    pub fn read(path: &Path, owner: FileOwner) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        owner.check(path, &file)?.map_err(|reason| io::Error::other(reason.to_string()))?;
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text)?;
        let record: Self = serde_json::from_str(&text).map_err(io::Error::other)?;
        if record.version != VERSION {
            return Err(io::Error::other(format!("unknown version {}", record.version)));
        }
        Ok(Some(record))
    }

    /// Replaces the record in a file that only the user can read. Only one process may write it at a time.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        let old = std::fs::read_to_string(path).ok();
        let new = serde_json::to_string(self).unwrap_or_default() + "\n";
        if old.as_deref() == Some(new.as_str()) {
            return Ok(());
        }
        if old.is_none()
            && let Some(folder) = path.parent()
        {
            // An error is that of the write.
            let _ = create_private_dir(folder);
            remove_oldest(folder);
        }
        edit::write(path, old.as_deref(), &new)
    }

    /// Forgets what was accepted for one use. Returns `true` if there was something.
    pub fn forget_single_use(&mut self) -> bool {
        !std::mem::take(&mut self.once).is_empty()
    }

    /// Returns all digests.
    pub(super) fn into_digests(self) -> BTreeSet<String> {
        self.approved.into_iter().chain(self.once).collect()
    }
}

/// Makes room for one more record.
fn remove_oldest(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut records: Vec<_> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    records.sort();
    let n_surplus = (records.len() + 1).saturating_sub(MAX_RECORDS);
    for (_, path) in records.into_iter().take(n_surplus) {
        let _ = std::fs::remove_file(path);
    }
}
