//! Clients that `pegboard serve` admits over HTTP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use pegboard::gateway::access::{self, AccessToken, TokenlessAccess};
use pegboard::gateway::api::ClientCredential;
use pegboard::owner::Owner;
use pegboard::settings::gateway::GatewaySettings;
use pegboard::wire::http::server::{HttpApplication, HttpServerOptions, can_identify_users};

use crate::cli::CliError;
use crate::environment;
use crate::token_file::TokenFile;

/// Clients that are admitted, and by what.
#[derive(Debug)]
pub(crate) enum AdmittedClients {
    /// Those with a token, each a principal, by the name of its variable.
    Principals(BTreeMap<String, AccessToken>),
    /// Those with the token of the state directory, and where the system can tell, all of this user.
    Token(TokenFile),
    /// Only those of this user, for this reason.
    OwnUser(String),
    /// All.
    Everyone,
}

impl AdmittedClients {
    /// Reads the tokens of these variables.
    pub(crate) fn from_variables(variables: &[String]) -> Result<Self, CliError> {
        let mut tokens = BTreeMap::new();
        for variable in variables {
            if Owner::new(variable) == Owner::local() {
                return Err(CliError::usage(format!(
                    "--token-env: {variable:?} is the name of the gateway's operator"
                ))
                .hint("use a variable with another name, such as CLIENT_TOKEN"));
            }
            let token = environment::var(variable).unwrap_or_default();
            let command = format!("export {variable}=$(openssl rand -hex 32)");
            if token.trim().is_empty() {
                return Err(CliError::usage(format!("--token-env: {variable} is not set"))
                    .hint(format!("set it to the token that clients must send: {command}")));
            }
            let token = AccessToken::new(&token).map_err(|weak| {
                CliError::usage(format!("--token-env: the token in {variable} can be guessed: {weak}"))
                    .hint(format!("create a strong one: {command}"))
            })?;
            if let Some((other, _)) = tokens.iter().find(|(_, known)| **known == token) {
                return Err(CliError::usage(format!(
                    "--token-env: {variable} and {other} have the same token"
                ))
                .hint("use a different token for each"));
            }
            tokens.insert(variable.clone(), token);
        }
        Ok(Self::Principals(tokens))
    }

    /// Reads the token of a state directory, or creates it.
    pub(crate) fn own_user(state: Option<&Path>) -> Result<Self, CliError> {
        let no_state = || {
            CliError::usage("no state directory for the token that clients send")
                .hint("set one with --state, or use --token-env")
        };
        match state.ok_or_else(no_state).and_then(TokenFile::open) {
            Ok(file) => Ok(Self::Token(file)),
            Err(failure) if can_identify_users() => Ok(Self::OwnUser(failure.message().to_owned())),
            Err(failure) => Err(failure),
        }
    }

    /// Returns an application that admits these clients. `application` creates that of a principal, or of all.
    pub(crate) fn restrict(
        &self,
        options: &HttpServerOptions,
        application: impl Fn(Option<&str>) -> Result<HttpApplication, CliError>,
    ) -> Result<HttpApplication, CliError> {
        let (tokens, tokenless) = match self {
            Self::Principals(tokens) => {
                let tokens = tokens.iter().map(|(name, token)| Ok((token.clone(), application(Some(name))?)));
                (tokens.collect::<Result<Vec<_>, CliError>>()?, TokenlessAccess::Denied)
            }
            Self::Token(file) => {
                let application = application(None)?;
                let token = (file.token().clone(), application.clone());
                (vec![token], TokenlessAccess::SameUser(application))
            }
            Self::OwnUser(_) => (Vec::new(), TokenlessAccess::SameUser(application(None)?)),
            Self::Everyone => (Vec::new(), TokenlessAccess::Everyone(application(None)?)),
        };
        Ok(access::restrict(tokens, tokenless, options))
    }

    /// Credential that clients send.
    pub(crate) fn credential(&self) -> ClientCredential {
        match self {
            Self::Principals(tokens) => {
                ClientCredential::Variables { names: tokens.keys().cloned().collect() }
            }
            Self::Token(file) => ClientCredential::TokenFile { path: file.path().to_owned() },
            Self::OwnUser(_) | Self::Everyone => ClientCredential::None,
        }
    }

    /// Path of the file with the token of this user.
    pub(crate) fn token_path(&self) -> Option<&Path> {
        match self {
            Self::Token(file) => Some(file.path()),
            Self::Principals(_) | Self::OwnUser(_) | Self::Everyone => None,
        }
    }

    /// Line that says which clients are admitted; `None` if the user has said so.
    pub(crate) fn notice(&self) -> Option<String> {
        match self {
            Self::Principals(_) => None,
            Self::Token(file) if can_identify_users() => {
                Some(format!("Token  {}  (only clients of other users need it)", file.path().display()))
            }
            Self::Token(file) => Some(format!("Token  {}  (clients need it)", file.path().display())),
            Self::OwnUser(reason) => {
                Some(format!("warning: {reason}: only clients of this user are admitted"))
            }
            Self::Everyone => {
                Some("warning: --open: every user of this machine can call every tool".to_owned())
            }
        }
    }
}

/// Returns the options of an endpoint at this address.
pub(crate) fn server_options(address: SocketAddr, settings: &GatewaySettings) -> HttpServerOptions {
    let mut options = HttpServerOptions::default();
    options.allowed_hosts.extend(settings.allowed_hosts.iter().cloned());
    options.allowed_hosts.push(match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    });
    options.allows_addresses = !address.ip().is_loopback();
    options.allowed_origins.clone_from(&settings.allowed_origins);
    options.max_body = settings.message_limits.max_bytes;
    options.max_depth = settings.message_limits.max_depth;
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_has_the_name_of_the_operator() {
        for name in ["local", ""] {
            let failure = AdmittedClients::from_variables(&[name.to_owned()]).unwrap_err();
            let expected = format!("--token-env: {name:?} is the name of the gateway's operator");
            assert_eq!(failure.message(), expected);
        }
        let failure = AdmittedClients::from_variables(&["LOCAL_OF_NOBODY".to_owned()]).unwrap_err();
        assert_eq!(failure.message(), "--token-env: LOCAL_OF_NOBODY is not set");
    }
}
