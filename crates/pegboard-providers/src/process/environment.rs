//! Which variables of this process a program gets to see.
//!
//! They are named one by one, so that a secret that this process was given stays with it. Whoever wants a program to
//! have another says so in the configuration.

use std::ffi::{OsStr, OsString};

use indexmap::IndexMap;

/// Who and where the user is, and how texts are written.
const BASICS: &[&str] =
    &["HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

/// What programs on Windows do not start without.
const WINDOWS: &[&str] = &[
    "ALLUSERSPROFILE",
    "APPDATA",
    "COMMONPROGRAMFILES",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "NUMBER_OF_PROCESSORS",
    "OS",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// How the network is reached: without these no package runner works behind a proxy or with a registry of one's own.
/// Capitals or not, both are in use.
const NETWORK: &[&str] = &[
    "ALL_PROXY",
    "CURL_CA_BUNDLE",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "NPM_CONFIG_CAFILE",
    "NPM_CONFIG_REGISTRY",
    "PIP_CERT",
    "PIP_INDEX_URL",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
];

/// Families of variables about languages and directories.
const FAMILIES: &[&str] = &["LC_", "XDG_"];

/// The environment of a program: what it may see of `inherited`, then `own`.
pub(super) fn of(
    own: &IndexMap<String, String>,
    inherited: impl Iterator<Item = (OsString, OsString)>,
) -> IndexMap<OsString, OsString> {
    let mut variables: IndexMap<_, _> = inherited.filter(|(name, value)| is_shared(name, value)).collect();
    for (name, value) in own {
        if cfg!(windows) {
            variables.retain(|taken: &OsString, _| !taken.eq_ignore_ascii_case(name));
        }
        variables.insert(name.into(), value.into());
    }
    variables
}

fn is_shared(name: &OsStr, value: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_one_of = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    let is_system = if cfg!(windows) {
        is_one_of(BASICS) || is_one_of(WINDOWS)
    } else {
        BASICS.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
    };
    // A shell function would be run by the shell that reads it.
    let is_function = value.as_encoded_bytes().starts_with(b"()");
    (is_system || (is_one_of(NETWORK) && !has_credentials(value))) && !is_function
}

/// An address with somebody's name in it has a password in it too.
fn has_credentials(value: &OsStr) -> bool {
    value.as_encoded_bytes().contains(&b'@')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(inherited: &[(&str, &str)], own: &[(&str, &str)], expected: &[(&str, &str)]) {
        let own = own.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let inherited = inherited.iter().map(|&(name, value)| (name.into(), value.into()));
        let expected: IndexMap<OsString, OsString> =
            expected.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        assert_eq!(of(&own, inherited), expected);
    }

    #[test]
    fn only_what_is_harmless_is_inherited() {
        let harmless = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("XDG_RUNTIME_DIR", "/run"),
            ("https_proxy", "http://proxy:3128"),
            ("SSL_CERT_FILE", "/etc/ca.pem"),
        ];
        check(&harmless, &[], &harmless);
        check(
            &[
                ("OPENAI_API_KEY", "sk-1"),
                ("LD_PRELOAD", "x.so"),
                ("SSH_AUTH_SOCK", "/s"),
                ("PATHX", "1"),
                ("", "1"),
            ],
            &[],
            &[],
        );
    }

    #[test]
    fn an_address_with_credentials_and_a_shell_function_stay_here() {
        check(
            &[
                ("HTTP_PROXY", "http://me:secret@proxy"),
                ("npm_config_registry", "https://t@r/"),
                ("TERM", "() { :; }"),
            ],
            &[],
            &[],
        );
    }

    #[test]
    fn what_the_configuration_says_wins() {
        check(
            &[("HOME", "/root"), ("USER", "root")],
            &[("HOME", "/srv"), ("API_KEY", "given")],
            &[("HOME", "/srv"), ("USER", "root"), ("API_KEY", "given")],
        );
    }
}
