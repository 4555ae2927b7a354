//! What files of clients said before they were changed, so that they can say it again.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pegboard::config::edit;
use serde::{Deserialize, Serialize};

use super::own_file::unwritable;
use crate::cli::{Failure, Globals};
use crate::place;

/// The file that lists all changes.
const INDEX: &str = "index.json";
/// The file that whoever changes something holds.
const LOCK: &str = "lock";
/// How long somebody else is waited for, and how often it is looked whether they are done.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// How many changes are remembered.
const MAX_NOTES: usize = 1_000;

/// All changes of files that are not ours.
pub(crate) struct Backups {
    folder: PathBuf,
    notes: Vec<Note>,
    /// Held by whoever changes something: two at once would take each other's places.
    _lock: Option<File>,
}

/// One change of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    id: u64,
    /// The client that the file is of.
    pub(crate) client: String,
    /// Where the file is.
    pub(crate) path: PathBuf,
    /// Whether there was a file before.
    pub(crate) existed: bool,
    /// Who could read and write it, where the system says so in a number.
    mode: Option<u32>,
}

/// What a file is given back.
pub(crate) struct Original {
    /// What it said; `None` if it was not there.
    pub(crate) text: Option<String>,
    /// What it said after it was last changed.
    pub(crate) left: String,
    /// The changes that are undone, from the first.
    notes: Vec<Note>,
}

impl Backups {
    /// The changes that were made so far, for whoever makes another one. Nobody else does so in the meantime.
    pub(crate) fn to_change(globals: &Globals) -> Result<Self, Failure> {
        let folder = folder(globals)?;
        let unusable = |error: io::Error| Failure::system(format!("{}: {error}", folder.display()));
        make_folder(&folder).map_err(unusable)?;
        let lock = own_file(&folder.join(LOCK)).map_err(unusable)?;
        let begun = Instant::now();
        while let Err(error) = lock.try_lock() {
            match error {
                TryLockError::Error(error) => return Err(unusable(error)),
                TryLockError::WouldBlock if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                TryLockError::WouldBlock => {
                    return Err(Failure::system("another pegboard changes files of clients")
                        .hint("wait until it is done, and try again"));
                }
            }
        }
        Ok(Self { _lock: Some(lock), ..Self::open(globals)? })
    }

    /// The changes that were made so far.
    pub(crate) fn open(globals: &Globals) -> Result<Self, Failure> {
        let folder = folder(globals)?;
        let notes = match fs::read(folder.join(INDEX)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                Failure::system(format!("{} cannot be read: {error}", folder.join(INDEX).display()))
                    .hint("the backups beside it are whole; put them back by hand, and move this file away")
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Failure::system(format!("{}: {error}", folder.display()))),
        };
        Ok(Self { folder, notes, _lock: None })
    }

    /// All changes that can be undone, from the first.
    pub(crate) fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Changes a file of a client, and remembers what it said.
    pub(crate) fn write(
        &mut self,
        client: &str,
        path: &Path,
        old: Option<&str>,
        new: &str,
    ) -> Result<(), Failure> {
        let id = self.notes.iter().map(|note| note.id).max().unwrap_or_default() + 1;
        let note = Note {
            id,
            client: client.to_owned(),
            path: path.to_owned(),
            existed: old.is_some(),
            mode: mode(path),
        };
        self.keep(&note, "before", old.unwrap_or_default())?;
        self.keep(&note, "after", new)?;
        self.notes.push(note.clone());
        while self.notes.len() > MAX_NOTES {
            let oldest = self.notes.remove(0);
            self.drop_files(&oldest);
        }
        self.save()?;
        edit::write(path, old, new).map_err(|error| {
            // There is nothing to be undone.
            self.notes.retain(|kept| *kept != note);
            self.drop_files(&note);
            let _ = self.save();
            unwritable(&error)
        })
    }

    /// What a file said before it was changed. Changes of ours that follow each other count as one.
    pub(crate) fn original(&self, path: &Path) -> Result<Option<Original>, Failure> {
        let of_file: Vec<&Note> = self.notes.iter().filter(|note| note.path == path).collect();
        let Some((last, earlier)) = of_file.split_last() else { return Ok(None) };
        let left = self.read(last, "after")?;
        let mut first = *last;
        let mut notes = vec![first.clone()];
        for note in earlier.iter().rev() {
            if !first.existed || self.read(note, "after")? != self.read(first, "before")? {
                break;
            }
            first = note;
            notes.insert(0, first.clone());
        }
        let text = if first.existed { Some(self.read(first, "before")?) } else { None };
        Ok(Some(Original { text, left, notes }))
    }

    /// Gives a file back what it said. `present` is what it says now; it is kept aside if somebody changed it.
    pub(crate) fn restore(
        &mut self,
        path: &Path,
        original: &Original,
        present: Option<&str>,
    ) -> Result<Option<PathBuf>, Failure> {
        let first = original.notes.first();
        let aside = match (present, first) {
            (Some(present), Some(first)) if present != original.left => {
                let free = |what: &String| !self.file(first, what).exists();
                let what =
                    (1..=MAX_NOTES).map(|number| format!("{number}.aside")).find(free).unwrap_or_default();
                Some(self.keep(first, &what, present)?)
            }
            _ => None,
        };
        match &original.text {
            Some(text) => {
                edit::write(path, present, text).map_err(|error| unwritable(&error))?;
                set_mode(path, first.and_then(|first| first.mode));
            }
            None => match edit::followed(path).and_then(fs::remove_file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Failure::system(format!("{} cannot be removed: {error}", path.display())));
                }
                _ => {}
            },
        }
        self.notes.retain(|note| !original.notes.contains(note));
        self.save()?;
        original.notes.iter().for_each(|note| self.drop_files(note));
        Ok(aside)
    }

    fn file(&self, note: &Note, what: &str) -> PathBuf {
        self.folder.join(format!("{:04}.{what}", note.id))
    }

    fn read(&self, note: &Note, what: &str) -> Result<String, Failure> {
        let path = self.file(note, what);
        fs::read_to_string(&path).map_err(|error| {
            Failure::system(format!("the backup {} cannot be read: {error}", path.display()))
        })
    }

    /// Keeps a text for nobody but this user: there may be keys in it.
    fn keep(&self, note: &Note, what: &str, text: &str) -> Result<PathBuf, Failure> {
        let refused = |error: io::Error| {
            Failure::system(format!("no backup can be kept in {}: {error}", self.folder.display()))
                .hint("name another folder: --state FOLDER")
        };
        let path = self.file(note, what);
        make_folder(&self.folder).map_err(refused)?;
        let mut file = own_file(&path).map_err(refused)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(refused)?;
        Ok(path)
    }

    fn drop_files(&self, note: &Note) {
        // Those that stay are in nobody's way.
        for what in ["before", "after"] {
            let _ = fs::remove_file(self.file(note, what));
        }
    }

    fn save(&self) -> Result<(), Failure> {
        let path = self.folder.join(INDEX);
        let old = fs::read_to_string(&path).ok();
        let text = serde_json::to_string_pretty(&self.notes).unwrap_or_default() + "\n";
        edit::write(&path, old.as_deref(), &text).map_err(|error| unwritable(&error))
    }
}

/// Where backups are kept.
fn folder(globals: &Globals) -> Result<PathBuf, Failure> {
    let state = place::state(globals.state.as_deref()).ok_or_else(|| {
        Failure::system("there is no folder for state, where backups are kept")
            .hint("name one: --state FOLDER")
    })?;
    Ok(state.join("backups"))
}

/// A folder that only this user can look into.
fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// A file that only this user can read, with nothing in it.
fn own_file(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(unix)]
fn mode(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    Some(fs::metadata(path).ok()?.permissions().mode() & 0o7777)
}

#[cfg(not(unix))]
fn mode(_: &Path) -> Option<u32> {
    None
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: Option<u32>) {
    use std::os::unix::fs::PermissionsExt;
    if let Some(mode) = mode {
        // Only the owner may, and whoever could write the file is either that or has not changed it.
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    }
}

#[cfg(not(unix))]
fn set_mode(_: &Path, _: Option<u32>) {}
