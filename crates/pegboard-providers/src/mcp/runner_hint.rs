//! Hints for failures of package runners that are known by what they write to stderr.

use pegboard_core::settings::mcp::{McpTarget, ServerProgram};
use pegboard_core::settings::package_runner::PackageRunner;

/// Directory of the packages that `npx` has installed.
const NPX_CACHE: &str = "/_npx/";
/// Directories of the environments that `uvx` has installed.
const UV_CACHES: [&str; 2] = ["/archive-v0/", "/environments-v2/"];

/// Returns a hint for the failure of a package runner, if its cause is known.
pub(super) fn known_fix(target: &McpTarget, stderr: &str) -> Option<String> {
    let McpTarget::Program(program) = target else { return None };
    let has = |text: &str| stderr.contains(text);
    match program.package_runner()? {
        PackageRunner::Npx => npx_fix(program, stderr),
        PackageRunner::Uvx if has("was not found in the package registry") => Some(no_package(program)),
        PackageRunner::Uvx if is_broken_uv_cache(stderr) => {
            Some("The cache of uv is damaged. Remove it and try again: uv cache clean".to_owned())
        }
        PackageRunner::Uvx if has("error sending request") || has("dns error") => Some(no_network("uv")),
        PackageRunner::Container if has("permission denied") && has("docker") => Some(
            "This user may not use Docker. Add it to the group and log in again: sudo usermod -aG docker $USER"
                .to_owned(),
        ),
        PackageRunner::Container if has("Cannot connect to the Docker daemon") || has("docker daemon is not running") => {
            Some(start_docker())
        }
        PackageRunner::Container if has("pull access denied") || has("manifest unknown") => {
            Some("Check the name of the image, or log in to its registry: docker login".to_owned())
        }
        PackageRunner::OtherNode | PackageRunner::Uvx | PackageRunner::Pipx | PackageRunner::Container => None,
    }
}

/// Returns the hint for a package runner that was stopped before its server answered.
pub(super) fn stopped_runner_fix(program: &ServerProgram) -> String {
    format!(
        "It was stopped and may have left an incomplete installation. Run `{}` by hand until the server is installed, or \
         increase `firstStartTimeout`.",
        install_command(program)
    )
}

fn npx_fix(program: &ServerProgram, stderr: &str) -> Option<String> {
    let has = |text: &str| stderr.contains(text);
    if has("ERR_MODULE_NOT_FOUND") || has("MODULE_NOT_FOUND") || has("ENOTEMPTY") {
        let folder = npx_folder(stderr)?;
        return Some(format!(
            "An earlier installation was interrupted. Remove it and try again: rm -rf {folder}"
        ));
    }
    if has("code E404") {
        return Some(no_package(program));
    }
    (has("code ENOTFOUND") || has("code EAI_AGAIN") || has("code ECONNREFUSED")).then(|| no_network("npm"))
}

/// Finds the directory of a package that `npx` has installed, in a text that the server may have written: only a path
/// that is safe in a shell is returned.
fn npx_folder(stderr: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-@+".contains(&byte);
    for (at, _) in stderr.match_indices(NPX_CACHE) {
        let start = stderr[..at].bytes().rposition(|byte| !is_plain(byte)).map_or(0, |before| before + 1);
        let rest = &stderr[at + NPX_CACHE.len()..];
        let n_hash = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let folder = &stderr[start..at + NPX_CACHE.len() + n_hash];
        if n_hash == 16 && folder.starts_with('/') && !folder.contains("/..") {
            return Some(folder);
        }
    }
    None
}

fn is_broken_uv_cache(stderr: &str) -> bool {
    let is_incomplete = ["ModuleNotFoundError", "ImportError", "No such file or directory"];
    let is_in_cache = UV_CACHES.iter().any(|cache| stderr.contains(cache));
    let is_unreadable = stderr.contains("Failed to deserialize cache")
        || stderr.contains("Failed to read from the distribution cache");
    is_unreadable || is_in_cache && is_incomplete.iter().any(|text| stderr.contains(text))
}

fn no_package(program: &ServerProgram) -> String {
    format!("There is no such package. Check its name: {}", install_command(program))
}

fn no_network(registry: &str) -> String {
    format!("The package registry of {registry} cannot be reached. Check the network and the proxy settings.")
}

fn start_docker() -> String {
    let command =
        if cfg!(target_os = "linux") { "sudo systemctl start docker" } else { "open Docker Desktop" };
    format!("Docker is not running. Start it: {command}")
}

/// Command line without the arguments of the server, which may contain secrets.
fn install_command(program: &ServerProgram) -> String {
    let mut words = vec![program.command.as_str()];
    for word in program.args.iter().map(String::as_str) {
        words.push(word);
        if !word.starts_with('-') && !["run", "tool", "exec", "x", "dlx"].contains(&word) {
            break;
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(line: &str) -> McpTarget {
        let mut words = line.split(' ').map(str::to_owned);
        let command = words.next().unwrap_or_default();
        McpTarget::Program(ServerProgram { args: words.collect(), ..ServerProgram::new(command) })
    }

    #[test]
    fn known_failures_of_package_runners_have_a_fix() {
        let npx = "Error [ERR_MODULE_NOT_FOUND]: Cannot find module \
                   '/home/ada/.npm/_npx/5b2dd62b9d0bddd4/node_modules/zod/index.js' imported from /home/ada/x";
        let uvx = "File \"/home/ada/.cache/uv/archive-v0/09zyXJL7_XUs-TEj/lib/python3.11/site-packages/mcp/__init__.py\"\n\
                   ModuleNotFoundError: No module named 'anyio'";
        let docker = "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon \
                      running?";
        let mut fixes = String::new();
        for (line, stderr) in [
            ("npx -y some-server --key secret", npx),
            ("npx -y some-server --key secret", "npm error code E404"),
            ("npx -y some-server", "npm error code ENOTFOUND"),
            ("uvx some-server", uvx),
            ("uvx some-server", "some-server was not found in the package registry"),
            ("docker run -i some/image", docker),
        ] {
            fixes.push_str(&known_fix(&target(line), stderr).unwrap_or_else(|| format!("none: {stderr}")));
            fixes.push('\n');
        }
        let docker_fix = start_docker();
        insta::assert_snapshot!(fixes.replace(&docker_fix, "(start Docker)"), @"
        An earlier installation was interrupted. Remove it and try again: rm -rf /home/ada/.npm/_npx/5b2dd62b9d0bddd4
        There is no such package. Check its name: npx -y some-server
        The package registry of npm cannot be reached. Check the network and the proxy settings.
        The cache of uv is damaged. Remove it and try again: uv cache clean
        There is no such package. Check its name: uvx some-server
        (start Docker)
        ");
    }

    #[test]
    fn a_hint_never_quotes_a_path_that_is_unsafe_in_a_shell() {
        let check =
            |stderr: &str, expected: Option<&str>| assert_eq!(npx_folder(stderr), expected, "{stderr}");
        check("'/a/_npx/0123456789abcdef/node_modules'", Some("/a/_npx/0123456789abcdef"));
        check("/a b/_npx/0123456789abcdef/x", None);
        check("$(x)/_npx/0123456789abcdef/x", Some("/_npx/0123456789abcdef"));
        check("/a/_npx/../../home/x", None);
        check("/a/../../_npx/0123456789abcdef/x", None);
        check("a/_npx/0123456789abcdef/x", None);
        check("/a/_npx/0123", None);
    }

    #[test]
    fn other_programs_and_unknown_failures_have_no_known_fix() {
        assert_eq!(known_fix(&target("node server.js"), "ERR_MODULE_NOT_FOUND /_npx/0123456789abcdef"), None);
        assert_eq!(known_fix(&target("npx -y some-server"), "it broke"), None);
        assert_eq!(known_fix(&McpTarget::Embedded, "ERR_MODULE_NOT_FOUND"), None);
    }
}
