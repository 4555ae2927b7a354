//! The way in which clients connect to Pegboard: a program that they start, or the URL of a gateway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use axum::http::Uri;
use clap::Args;
use pegboard::config::export::{SERVER_NAME, ServeTarget};
use pegboard::config::{ConfigurationError, SourceSpec};
use pegboard::secret::Secret;
use serde_json::Value;

use crate::api_client::{ApiClient, ApiPath};
use crate::cli::{CliError, ExitReason, Globals, notice};
use crate::environment;
use crate::paths::{self, ConfigSelection, absolute, working_dir};
use crate::token_file::TokenFile;

/// Path of the endpoint of a gateway.
const ENDPOINT_PATH: &str = "/mcp";

/// Choice between the program and a URL.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConnectionOptions {
    /// Connect to a URL instead of starting a program: that of the running gateway by default
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, value_parser = endpoint_url)]
    #[expect(clippy::option_option, reason = "its value may be left out")]
    http: Option<Option<String>>,
    /// Environment variable with the token that the gateway requires; its value is written into the client's file
    #[arg(long, value_name = "VARIABLE", requires = "http")]
    token_env: Option<String>,
}

/// Users of a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileUsers {
    /// One user of this machine.
    One,
    /// All who have a copy of the project.
    Several,
}

impl ConnectionOptions {
    /// Returns `true` if the client starts a program.
    pub(crate) fn is_program(&self) -> bool {
        self.http.is_none()
    }

    /// Returns the way in which clients connect to the gateway of the configuration `file`, or else that of this
    /// command.
    pub(crate) async fn target(
        &self,
        globals: &Globals,
        file: Option<&Path>,
        profile: Option<&str>,
        users: FileUsers,
    ) -> Result<ServeTarget, CliError> {
        let Some(url) = &self.http else {
            let args = serve_arguments(globals, file, profile)?;
            return Ok(ServeTarget::Program { command: program_command(users)?, args });
        };
        let (url, gateway) = match url {
            Some(url) => match gateway_at(globals, url).await {
                Some((url, status)) => (url, Some(status)),
                None => (url.clone(), None),
            },
            None => running_gateway(globals).await?,
        };
        let token = match (users, &self.token_env) {
            (FileUsers::Several, _) => None,
            (FileUsers::One, Some(variable)) => Some(token_of_variable(variable)?),
            (FileUsers::One, None) => {
                if gateway.is_none() && is_own_gateway(&url) {
                    let hint = "if it needs a token, start it first, or add --token-env VARIABLE";
                    notice(globals, &format!("No gateway of yours is running at {url}: {hint}"));
                }
                // Without a gateway of this user, another one may listen there, and would get a token for all of this one's.
                gateway.as_ref().map(token_of_gateway).transpose()?.flatten()
            }
        };
        Ok(ServeTarget::Url { url: with_profile(url, profile)?, token })
    }
}

/// Parses the URL of an endpoint.
fn endpoint_url(text: &str) -> Result<String, String> {
    let is_endpoint = text.parse::<Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    if is_endpoint {
        Ok(text.to_owned())
    } else {
        Err("use a URL such as http://127.0.0.1:7332/mcp".to_owned())
    }
}

/// Returns the address and the status of the running gateway.
async fn running_gateway(globals: &Globals) -> Result<(String, Option<Value>), CliError> {
    let hint = "start one with `pegboard serve`, or name its address: --http=http://127.0.0.1:7332/mcp";
    let api = ApiClient::running(globals).await.map_err(|failure| failure.hint(hint))?;
    let status = api.get(&ApiPath::new(&["status"])).await?;
    let Some(url) = status["addresses"][0].as_str() else {
        let message = format!("the running gateway (pid {}) has no HTTP address", status["pid"]);
        let hint = "start one that has: pegboard serve; or connect without --http, and share this one";
        return Err(CliError::new(ExitReason::Unavailable, "not_running", message).hint(hint));
    };
    Ok((url.to_owned(), Some(status)))
}

/// Returns the URL with the address of this user's running gateway that serves it, and the status of that gateway.
async fn gateway_at(globals: &Globals, url: &str) -> Option<(String, Value)> {
    let served = |status: &Value| {
        let mut addresses = status["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
        addresses.find_map(|address| url_of_gateway(url, address))
    };
    let status = ApiClient::status_where(globals, |status| served(status).is_some()).await?;
    Some((served(&status)?, status))
}

/// Returns the URL with the address of a gateway, if the gateway serves it. Another address of this machine may be that
/// of another user, also with the same port, and `localhost` has several.
fn url_of_gateway(url: &str, gateway: &str) -> Option<String> {
    let (uri, gateway) = (url.parse::<Uri>().ok()?, gateway.parse::<Uri>().ok()?);
    if uri.scheme_str() != Some("http") || uri.port_u16().unwrap_or(80) != gateway.port_u16()? {
        return None;
    }
    let own = ip_address(gateway.host()?)?;
    if uri.host()?.eq_ignore_ascii_case("localhost") {
        let address = match own {
            IpAddr::V4(own) if own.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(own) if own.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            own => own,
        };
        let address = SocketAddr::new(address, gateway.port_u16()?);
        return Some(format!("http://{address}{}", uri.path_and_query()?));
    }
    let address = ip_address(uri.host()?)?;
    let is_any = own.is_unspecified() && address.is_loopback() && own.is_ipv4() == address.is_ipv4();
    (address == own || is_any).then(|| url.to_owned())
}

fn ip_address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Adds the path of a profile to the URL of an endpoint.
fn with_profile(url: String, profile: Option<&str>) -> Result<String, CliError> {
    let Some(profile) = profile else { return Ok(url) };
    match url.trim_end_matches('/') {
        endpoint if endpoint.ends_with(ENDPOINT_PATH) => Ok(format!("{endpoint}/{profile}")),
        _ => Err(CliError::usage(format!(
            "--profile cannot be added to {url}: its path is not {ENDPOINT_PATH}"
        ))
        .hint(format!("write the profile into the URL: …{ENDPOINT_PATH}/{profile}"))),
    }
}

/// Returns the token that a running gateway of this user requires.
fn token_of_gateway(status: &Value) -> Result<Option<Secret>, CliError> {
    let credential = &status["credential"];
    match credential["kind"].as_str() {
        Some("token_file") => {
            let path = Path::new(credential["path"].as_str().unwrap_or_default());
            let state = path.parent().unwrap_or(path);
            Ok(Some(Secret::new(TokenFile::open(state)?.token().reveal())))
        }
        Some("variables") => {
            let names = credential["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let names: Vec<&str> = names.collect();
            let message =
                format!("the gateway requires a token: that in its variable {}", names.join(" or "));
            let name = names.first().unwrap_or(&"CLIENT_TOKEN");
            Err(CliError::usage(message).hint(format!("set it here, too, and add --token-env {name}")))
        }
        _ => Ok(None),
    }
}

fn token_of_variable(variable: &str) -> Result<Secret, CliError> {
    let token = environment::var(variable).filter(|token| !token.trim().is_empty());
    let token = token.ok_or_else(|| {
        CliError::usage(format!("--token-env: {variable} is not set"))
            .hint(format!("set it to the token of the gateway: export {variable}=…"))
    })?;
    Ok(Secret::new(token.trim()))
}

/// Returns `true` if a URL is served on this machine, where a gateway of this user may be.
fn is_own_gateway(url: &str) -> bool {
    let host = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    host.eq_ignore_ascii_case("localhost") || ip_address(&host).is_some_and(|address| address.is_loopback())
}

/// Command that starts this program: its full path, since clients may have another `PATH`. In files that users share
/// it is the name, if that finds it here.
fn program_command(users: FileUsers) -> Result<String, CliError> {
    let program = std::env::current_exe()
        .map_err(|error| CliError::system(format!("cannot determine the path of this program: {error}")))?;
    let file = format!("{SERVER_NAME}{}", std::env::consts::EXE_SUFFIX);
    let real = |path: &Path| path.canonicalize().ok();
    let paths = environment::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&paths).map(|folder| folder.join(&file)).find(|path| path.is_file());
    let own = first.filter(|first| real(first).is_some() && real(first) == real(&program));
    Ok(match (own, users) {
        (Some(_), FileUsers::Several) => SERVER_NAME.to_owned(),
        // It may be a link that stays the same when the program is updated.
        (Some(path), FileUsers::One) => absolute(&path)?.display().to_string(),
        (None, _) => program.display().to_string(),
    })
}

/// Arguments with which a client starts this program, so that it serves the configuration of this command.
fn serve_arguments(
    globals: &Globals,
    file: Option<&Path>,
    profile: Option<&str>,
) -> Result<Vec<String>, CliError> {
    let mut arguments = vec!["serve".to_owned(), "--stdio".to_owned()];
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    if let Some(file) = file {
        option("--config", absolute(file)?.display().to_string());
    } else if globals.config.is_empty() {
        let selection = ConfigSelection::without_probing(globals)?;
        // Nothing is written that cannot work.
        selection.inspect_required()?;
        // A client may start it in any directory.
        if let Ok(path) = pegboard::config::find(&working_dir()?, &paths::env_var) {
            let path = absolute(&path)?;
            let named = ConfigSelection::without_probing(&globals.with_only_config(path.clone()))?;
            match folder_of(&path) {
                // Named, it would go without the tools of the user's file.
                Some(folder) if named.files().canonical() != selection.files().canonical() => {
                    option("--directory", folder.display().to_string());
                }
                _ => option("--config", path.display().to_string()),
            }
        }
    } else {
        for source in &globals.config {
            option("--config", absolute_source(source)?);
        }
        ConfigSelection::without_probing(globals)?.inspect_required()?;
    }
    for setting in &globals.set {
        option("--set", setting.clone());
    }
    if let Some(state) = &globals.state {
        option("--state", absolute(state)?.display().to_string());
    }
    if let Some(profile) = profile {
        option("--profile", profile.to_owned());
    }
    Ok(arguments)
}

/// Returns the folder in which a file is found without being named.
fn folder_of(path: &Path) -> Option<&Path> {
    let folder = path.parent()?;
    let no_variables = |_: &str| None;
    let found = pegboard::config::find(folder, &no_variables).ok()?;
    (found == path).then_some(folder)
}

/// Returns a source in a form that is valid in every directory.
fn absolute_source(source: &Path) -> Result<String, CliError> {
    match paths::source_spec(source, &working_dir()?)? {
        SourceSpec::File(path) if !path.exists() => {
            Err(CliError::from(ConfigurationError::NotFound { path }))
        }
        SourceSpec::File(path) | SourceSpec::Folder(path) => Ok(absolute(&path)?.display().to_string()),
        SourceSpec::Client { .. } | SourceSpec::Url(_) | SourceSpec::Document(_) | SourceSpec::Command(_) => {
            Ok(source.display().to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_endpoints_are_told_from_other_words() {
        for (text, is_endpoint) in [
            ("http://127.0.0.1:7332/mcp", true),
            ("https://example.com", true),
            ("codex", false),
            ("127.0.0.1:7332", false),
            ("ws://127.0.0.1/mcp", false),
            ("http://", false),
        ] {
            assert_eq!(endpoint_url(text).is_ok(), is_endpoint, "{text}");
        }
    }

    #[test]
    fn a_profile_is_a_part_of_the_path() {
        let added = |url: &str| with_profile(url.to_owned(), Some("flat")).map_err(|failure| failure.text());
        assert_eq!(added("http://a/mcp").unwrap(), "http://a/mcp/flat");
        assert_eq!(added("http://a/mcp/").unwrap(), "http://a/mcp/flat");
        insta::assert_snapshot!(added("http://a/mcp/meta").unwrap_err(), @"
        error[usage]: --profile cannot be added to http://a/mcp/meta: its path is not /mcp
          help: write the profile into the URL: …/mcp/flat
        ");
    }

    #[test]
    fn a_gateway_serves_its_own_address_only() {
        let own = "http://127.0.0.1:7332/mcp";
        for (url, gateway, expected) in [
            (own, own, Some(own)),
            ("http://localhost:7332/mcp/flat", own, Some("http://127.0.0.1:7332/mcp/flat")),
            ("http://LOCALHOST:7332/mcp", "http://[::1]:7332/mcp", Some("http://[::1]:7332/mcp")),
            ("http://localhost:7332/mcp", "http://0.0.0.0:7332/mcp", Some(own)),
            (own, "http://0.0.0.0:7332/mcp", Some(own)),
            ("http://[::1]:7332/mcp", own, None),
            ("http://127.0.0.2:7332/mcp", own, None),
            ("http://[::1]:7332/mcp", "http://0.0.0.0:7332/mcp", None),
            ("http://127.0.0.1:7333/mcp", own, None),
            ("https://127.0.0.1:7332/mcp", own, None),
            ("http://127.0.0.1:7332@example.com/mcp", own, None),
        ] {
            assert_eq!(url_of_gateway(url, gateway).as_deref(), expected, "{url} of {gateway}");
        }
    }

    #[test]
    fn gateways_of_this_user_are_on_this_machine() {
        for (url, is_own) in [
            ("http://127.0.0.1:7332/mcp", true),
            ("http://localhost/mcp", true),
            ("http://[::1]:7332/mcp", true),
            ("http://127.0.0.1.example.com/mcp", false),
            ("http://127.0.0.1@example.com/mcp", false),
            ("https://example.com/mcp?127.0.0.1", false),
        ] {
            assert_eq!(is_own_gateway(url), is_own, "{url}");
        }
    }
}
