//! Errors of loading a configuration.

use std::io;
use std::path::{Path, PathBuf};

use crate::problem::ConfigProblem;
use crate::source::MAX_BYTES;
use crate::trust::UnsafeFileReason;

/// Error of loading a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file does not exist.
    #[error("{}: no such file. Check the path, or create it: {EXAMPLE}", path.display())]
    NotFound {
        /// Path of the file.
        path: PathBuf,
    },
    /// No configuration file was found.
    #[error(
        "no configuration found in {}. Create a pegboard.yaml: {EXAMPLE}",
        folder.display()
    )]
    NoConfiguration {
        /// Directory that was searched.
        folder: PathBuf,
    },
    /// The source is neither a file nor a known client.
    #[error("no file, directory or client named '{written}'. {}", advice(suggestion.as_deref()))]
    UnknownSource {
        /// The source as written.
        written: String,
        /// The most similar name.
        suggestion: Option<String>,
    },
    /// The client has no configuration file.
    #[error("{client} has no configuration file. Searched: {}", join_paths(paths))]
    NoClientFile {
        /// Name of the client.
        client: String,
        /// Paths that were searched.
        paths: Vec<PathBuf>,
    },
    /// The source has no server with this name.
    #[error("{source_name} has no server '{written}'. {}", server_advice(suggestion.as_deref()))]
    NoSuchServer {
        /// Source that was searched.
        source_name: String,
        /// Name of the server.
        written: String,
        /// The most similar name.
        suggestion: Option<String>,
    },
    /// The path is a directory.
    #[error("{}: this is a directory. Use a file in it", path.display())]
    IsDirectory {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("{}: cannot read the file: {error}{}", path.display(), read_advice(error))]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        #[source]
        error: io::Error,
    },
    /// The file was found rather than named, and other users could have written it.
    #[error("{}: {reason}, so it was not loaded. {}", path.display(), reason.help(path))]
    UnsafeFile {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        reason: UnsafeFileReason,
    },
    /// The file is too large for a configuration.
    #[error(
        "{}: the file is larger than {} MiB. Is it the right one?",
        path.display(),
        MAX_BYTES / 1024 / 1024
    )]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not UTF-8.
    #[error("{}: invalid UTF-8 at byte {offset}. Save the file as UTF-8", path.display())]
    NotUtf8 {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the first invalid byte.
        offset: usize,
    },
    /// The file is empty.
    #[error("{}: the file is empty. A minimal example: {EXAMPLE}", path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
    /// The contents are invalid.
    #[error("{}", render_all(problems))]
    Invalid {
        /// All problems, in file order.
        problems: Vec<ConfigProblem>,
    },
}

/// The smallest useful configuration.
const EXAMPLE: &str = r#"{"mcpServers": {"files": {"command": "my-server"}}}"#;

impl ConfigurationError {
    /// Returns the problems in the file; empty if the file could not be read.
    pub fn problems(&self) -> &[ConfigProblem] {
        match self {
            Self::Invalid { problems } => problems,
            Self::NotFound { .. }
            | Self::NoConfiguration { .. }
            | Self::UnknownSource { .. }
            | Self::NoClientFile { .. }
            | Self::NoSuchServer { .. }
            | Self::IsDirectory { .. }
            | Self::Unreadable { .. }
            | Self::UnsafeFile { .. }
            | Self::TooLarge { .. }
            | Self::NotUtf8 { .. }
            | Self::Empty { .. } => &[],
        }
    }

    pub(crate) fn unreadable(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            io::ErrorKind::IsADirectory => Self::IsDirectory { path },
            _ => Self::Unreadable { path, error },
        }
    }
}

fn advice(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(
        || "Use a file, a directory, a URL, or a client such as claude-code".to_owned(),
        |suggestion| format!("Did you mean {suggestion}?"),
    )
}

/// Returns the remedy for an error of reading a file, if the file is to blame.
fn read_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ". Check its permissions",
        _ => "",
    }
}

fn server_advice(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(|| "Check the name".to_owned(), |suggestion| format!("Did you mean {suggestion}?"))
}

fn join_paths(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

fn render_all(problems: &[ConfigProblem]) -> String {
    let rendered: Vec<String> = problems.iter().map(ConfigProblem::render).collect();
    format!("{}\n{}", rendered.join("\n"), ConfigProblem::summary(problems))
}
