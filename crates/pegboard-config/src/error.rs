//! Why there is no configuration.

use std::io;
use std::path::{Path, PathBuf};

use crate::problem::{Problem, Severity};
use crate::source::MAX_BYTES;

/// Why a file gives no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// There is no such file.
    #[error("{}: there is no such file. Check the path, or write one: {EXAMPLE}", path.display())]
    NotThere {
        /// Where it should be.
        path: PathBuf,
    },
    /// There is none of the files that are looked for.
    #[error(
        "there is no configuration in {}. Write a pegboard.yaml: {EXAMPLE}",
        folder.display()
    )]
    NoneFound {
        /// Where was looked.
        folder: PathBuf,
    },
    /// It names neither a file nor anything else.
    #[error("there is no file, folder or client '{written}'. {}", advice(meant.as_deref()))]
    Unknown {
        /// What somebody wrote.
        written: String,
        /// What was probably meant.
        meant: Option<String>,
    },
    /// A client has none of its files.
    #[error("{client} has no file with servers here. These were looked for: {}", listed(places))]
    NoClientFile {
        /// The client.
        client: String,
        /// Where was looked.
        places: Vec<PathBuf>,
    },
    /// There is no server of a name.
    #[error("{source_name} has no server '{written}'. {}", advice_of_part(meant.as_deref()))]
    NoSuchPart {
        /// Where was looked.
        source_name: String,
        /// The name.
        written: String,
        /// What was probably meant.
        meant: Option<String>,
    },
    /// It is a folder.
    #[error("{}: this is a folder. Name the file in it", path.display())]
    Folder {
        /// Where it is.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("{}: the file cannot be read: {error}. Check who may read it", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// It is too large to be a configuration.
    #[error(
        "{}: the file has more than {} MiB, which no configuration has. Is it the right one?",
        path.display(),
        MAX_BYTES / 1024 / 1024
    )]
    TooLarge {
        /// Where it is.
        path: PathBuf,
    },
    /// It is no text.
    #[error("{}: byte {offset} is no UTF-8. Save the file as UTF-8", path.display())]
    NotText {
        /// Where it is.
        path: PathBuf,
        /// Where the text ends.
        offset: usize,
    },
    /// There is nothing in it.
    #[error("{}: the file is empty. The smallest one that does something: {EXAMPLE}", path.display())]
    Empty {
        /// Where it is.
        path: PathBuf,
    },
    /// What is in it cannot be used.
    #[error("{}", told(problems))]
    Invalid {
        /// All that is wrong, in the order of the file.
        problems: Vec<Problem>,
    },
}

/// The smallest configuration that does something.
const EXAMPLE: &str = r#"{"mcpServers": {"files": {"command": "my-server"}}}"#;

impl ConfigurationError {
    /// What is wrong inside the file; nothing if it could not be read at all.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Invalid { problems } => problems,
            Self::NotThere { .. }
            | Self::NoneFound { .. }
            | Self::Unknown { .. }
            | Self::NoClientFile { .. }
            | Self::NoSuchPart { .. }
            | Self::Folder { .. }
            | Self::Unreadable { .. }
            | Self::TooLarge { .. }
            | Self::NotText { .. }
            | Self::Empty { .. } => &[],
        }
    }

    pub(crate) fn unreadable(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotThere { path },
            io::ErrorKind::IsADirectory => Self::Folder { path },
            _ => Self::Unreadable { path, error },
        }
    }
}

fn advice(meant: Option<&str>) -> String {
    meant.map_or_else(
        || "Name a file, a folder, an address, or a client such as claude-code".to_owned(),
        |meant| format!("Did you mean {meant}?"),
    )
}

fn advice_of_part(meant: Option<&str>) -> String {
    meant.map_or_else(|| "Check the name".to_owned(), |meant| format!("Did you mean {meant}?"))
}

fn listed(places: &[PathBuf]) -> String {
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    places.join(", ")
}

fn told(problems: &[Problem]) -> String {
    let told: Vec<String> = problems.iter().map(Problem::render).collect();
    let n_errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    let s = if n_errors == 1 { "" } else { "s" };
    let is_of_files = problems.iter().all(|problem| problem.line > 0);
    let is_of_one = problems.iter().all(|problem| problem.file == problems[0].file);
    let what = match (is_of_files, is_of_one) {
        (true, true) => "this file",
        (true, false) => "these files",
        (false, _) => "this configuration",
    };
    format!("{}\n{n_errors} error{s}: nothing of {what} is used", told.join("\n"))
}
