//! The environment of a program: an allow-list of inherited variables.
//!
//! Only listed variables are inherited, so that secrets in the environment of this process do not leak.
//! Others must be set in the configuration.

use std::ffi::{OsStr, OsString};

use indexmap::IndexMap;
use pegboard_core::secret::Secret;

/// User, locale and paths.
const BASICS: &[&str] =
    &["HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

/// Variables that programs on Windows need to start.
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

/// Network access: package runners need these behind a proxy or with a private registry. Both upper and lower
/// case are in use.
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

/// Places where programs find the screen, clusters, containers and what they have downloaded.
const PLACES: &[&str] = &[
    "DISPLAY",
    "DOCKER_HOST",
    "KUBECONFIG",
    "NPM_CONFIG_CACHE",
    "UV_CACHE_DIR",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
];

/// Prefixes of locale and directory variables.
const PREFIXES: &[&str] = &["LC_", "XDG_"];

/// Builds the environment of a program: the allowed variables of `inherited`, overridden by `explicit`.
pub(super) fn build(
    explicit: &IndexMap<String, Secret>,
    inherited: impl Iterator<Item = (OsString, OsString)>,
) -> IndexMap<OsString, OsString> {
    let mut variables: IndexMap<_, _> = inherited.filter(|(name, value)| is_inherited(name, value)).collect();
    for (name, value) in explicit {
        if cfg!(windows) {
            variables.retain(|taken: &OsString, _| !taken.eq_ignore_ascii_case(name));
        }
        variables.insert(name.into(), value.reveal().into());
    }
    variables
}

/// Returns `true` if programs inherit the variable with this name, unless its value contains a password or a function.
pub fn is_inherited_name(name: &str) -> bool {
    is_system_name(name) || is_one_of(name, NETWORK) || is_one_of(name, PLACES)
}

fn is_inherited(name: &OsStr, value: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    // A shell that reads an exported function would run it.
    let is_function = value.as_encoded_bytes().starts_with(b"()");
    let is_address = is_one_of(name, NETWORK) || is_one_of(name, PLACES);
    (is_system_name(name) || (is_address && !has_credentials(value))) && !is_function
}

fn is_system_name(name: &str) -> bool {
    if cfg!(windows) {
        is_one_of(name, BASICS) || is_one_of(name, WINDOWS)
    } else {
        BASICS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    }
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Returns `true` for a URL with user information, which may contain a password.
fn has_credentials(value: &OsStr) -> bool {
    value.as_encoded_bytes().contains(&b'@')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(inherited: &[(&str, &str)], explicit: &[(&str, &str)], expected: &[(&str, &str)]) {
        let explicit = explicit.iter().map(|&(name, value)| (name.to_owned(), Secret::new(value))).collect();
        let inherited = inherited.iter().map(|&(name, value)| (name.into(), value.into()));
        let expected: IndexMap<OsString, OsString> =
            expected.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        assert_eq!(build(&explicit, inherited), expected);
    }

    #[test]
    fn only_harmless_variables_are_inherited() {
        let harmless = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("XDG_RUNTIME_DIR", "/run"),
            ("https_proxy", "http://proxy:3128"),
            ("SSL_CERT_FILE", "/etc/ca.pem"),
            ("DISPLAY", ":0"),
            ("KUBECONFIG", "/home/me/kube"),
            ("npm_config_cache", "/home/me/.npm"),
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
    fn urls_with_credentials_and_shell_functions_are_not_inherited() {
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
    fn configured_variables_override_inherited_ones() {
        check(
            &[("HOME", "/root"), ("USER", "root")],
            &[("HOME", "/srv"), ("API_KEY", "given")],
            &[("HOME", "/srv"), ("USER", "root"), ("API_KEY", "given")],
        );
    }
}
