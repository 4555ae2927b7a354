//! The token of this user's gateways, in the state directory.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pegboard::gateway::access::AccessToken;
use pegboard_files::RegularFile;

use crate::cli::CliError;

/// Name of the file in the state directory.
const FILE_NAME: &str = "token";
/// Number of random bytes in a token.
const TOKEN_BYTES: usize = 32;
/// Maximum size of the file.
const MAX_BYTES: u64 = 4096;

/// File with the token that clients send to a gateway of this user. Only this user can read it.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    token: AccessToken,
}

impl TokenFile {
    /// Reads the token of a state directory, or creates one.
    pub(crate) fn open(state: &Path) -> Result<Self, CliError> {
        let path = state.join(FILE_NAME);
        let text = match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(state, &path).and_then(|()| read(&path))
            }
            found => found,
        };
        let problem = |why: String| {
            CliError::system(format!("cannot use the token in {}: {why}", path.display()))
                .hint("remove the file, and the next start creates another; or set --token-env or --open")
        };
        let text = text.map_err(|error| problem(error.to_string()))?;
        let token = AccessToken::new(&text).map_err(|weak| problem(weak.to_string()))?;
        Ok(Self { path, token })
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the token.
    pub(crate) fn token(&self) -> &AccessToken {
        &self.token
    }
}

/// Returns a new token.
pub(crate) fn random_token() -> AccessToken {
    AccessToken::new(&random_hex(TOKEN_BYTES)).expect("random digits are strong")
}

/// Reads a file of this user that other users cannot read.
fn read(path: &Path) -> io::Result<String> {
    let bytes = RegularFile::open_private(path)?.read(MAX_BYTES)?;
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| io::Error::other("it is not a file with a token"))
}

/// Creates the file with a new token. If another process creates it at the same time, one token is kept.
fn create(state: &Path, path: &Path) -> io::Result<()> {
    let mut folder = fs::DirBuilder::new();
    folder.recursive(true);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        folder.mode(0o700);
        options.mode(0o600);
    }
    folder.create(state)?;
    // Complete before it has its name, so that no process reads a part of it.
    let draft = state.join(format!("{FILE_NAME}.{}", random_hex(8)));
    let mut file = options.open(&draft)?;
    let written = writeln!(file, "{}", random_token().reveal()).and_then(|()| file.sync_all());
    let named = written.and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Some file systems have no links.
        Err(_) if !path.exists() => fs::rename(&draft, path),
        linked => linked,
    });
    let _ = fs::remove_file(&draft);
    named
}

/// Returns random bytes as hexadecimal digits.
fn random_hex(n_bytes: usize) -> String {
    let digit = |_| char::from_digit(rand::random::<u32>() % 16, 16).expect("a remainder by 16 is a digit");
    (0..2 * n_bytes).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_created_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let opening: Vec<_> = (0..8).map(|_| scope.spawn(|| TokenFile::open(&state).unwrap())).collect();
            opening.into_iter().map(|opened| opened.join().unwrap().token.reveal().to_owned()).collect()
        });
        assert!(
            tokens.iter().all(|token| *token == tokens[0] && token.len() == 2 * TOKEN_BYTES),
            "{tokens:?}"
        );
        let files: Vec<_> = fs::read_dir(&state).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, [FILE_NAME]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
            assert_eq!((mode(&state), mode(&state.join(FILE_NAME))), (0o700, 0o600));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_token_that_others_know_or_guess_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let mut said = Vec::new();
        for (text, mode) in [("0b7d2c1e9a4f83560b7d2c1e9a4f8356\n", 0o644), ("s3cret\n", 0o600), ("", 0o600)]
        {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let why = TokenFile::open(folder.path()).unwrap_err().text();
            said.push(why.replace(&path.display().to_string(), "TOKEN"));
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let why = TokenFile::open(folder.path()).unwrap_err().text();
        said.push(why.replace(&path.display().to_string(), "TOKEN"));
        insta::assert_snapshot!(said.join("\n"), @r"
        error[system]: cannot use the token in TOKEN: other users can access it
          help: remove the file, and the next start creates another; or set --token-env or --open
        error[system]: cannot use the token in TOKEN: it has 6 characters, and a token needs at least 20
          help: remove the file, and the next start creates another; or set --token-env or --open
        error[system]: cannot use the token in TOKEN: it has 0 characters, and a token needs at least 20
          help: remove the file, and the next start creates another; or set --token-env or --open
        error[system]: cannot use the token in TOKEN: it is a link
          help: remove the file, and the next start creates another; or set --token-env or --open
        ");
    }
}
