//! Package runners: programs that install a server before they start it.

use std::path::Path;

use super::mcp::ServerProgram;

/// A program that installs a package or an image, and then runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageRunner {
    /// `npx`, `npm exec` and others that use the cache of npm.
    Npx,
    /// `bunx`, `pnpm dlx`, `yarn dlx`, `deno run`: runners for npm packages with a cache of their own.
    OtherNode,
    /// `uvx`, `uv run`, `uv tool run`.
    Uvx,
    /// `pipx run`.
    Pipx,
    /// `docker run`, `podman run`, `nerdctl run`.
    Container,
}

impl ServerProgram {
    /// Returns the package runner that starts the server, if one does.
    ///
    /// ```
    /// use pegboard_core::settings::mcp::ServerProgram;
    /// use pegboard_core::settings::package_runner::PackageRunner;
    ///
    /// let program = ServerProgram { args: vec!["-y".into(), "some-server".into()], ..ServerProgram::new("npx") };
    /// assert_eq!(program.package_runner(), Some(PackageRunner::Npx));
    /// assert_eq!(ServerProgram::new("node").package_runner(), None);
    /// ```
    pub fn package_runner(&self) -> Option<PackageRunner> {
        let mut words = std::iter::once(self.command.as_str()).chain(self.args.iter().map(String::as_str));
        let mut program = program_name(words.next()?);
        // Windows starts scripts such as npx through its shell.
        if program == "cmd" {
            program = program_name(words.by_ref().find(|word| !word.starts_with('/'))?);
        }
        let mut verbs = words.filter(|word| !word.starts_with('-'));
        match program.as_str() {
            "npx" => Some(PackageRunner::Npx),
            "bunx" | "pnpx" => Some(PackageRunner::OtherNode),
            "uvx" => Some(PackageRunner::Uvx),
            "npm" => verbs.next().filter(|verb| ["exec", "x"].contains(verb)).map(|_| PackageRunner::Npx),
            "bun" => verbs.next().filter(|verb| *verb == "x").map(|_| PackageRunner::OtherNode),
            "pnpm" | "yarn" => verbs.next().filter(|verb| *verb == "dlx").map(|_| PackageRunner::OtherNode),
            "deno" => verbs.next().filter(|verb| *verb == "run").map(|_| PackageRunner::OtherNode),
            "pipx" => verbs.next().filter(|verb| *verb == "run").map(|_| PackageRunner::Pipx),
            "uv" => verbs.next().filter(|verb| ["run", "tool"].contains(verb)).map(|_| PackageRunner::Uvx),
            "docker" | "podman" | "nerdctl" => {
                verbs.any(|verb| verb == "run").then_some(PackageRunner::Container)
            }
            _ => None,
        }
    }
}

/// Name of a program without its directory and extension, in lower case.
fn program_name(command: &str) -> String {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name);
    stem.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_runners_are_recognised_by_their_command_line() {
        let check = |line: &str, expected: Option<PackageRunner>| {
            let mut words = line.split(' ').map(str::to_owned);
            let command = words.next().unwrap_or_default();
            let program = ServerProgram { args: words.collect(), ..ServerProgram::new(command) };
            assert_eq!(program.package_runner(), expected, "{line}");
        };
        check("npx -y some-server", Some(PackageRunner::Npx));
        check("/usr/local/bin/npx some-server", Some(PackageRunner::Npx));
        check(r"C:\node\npx.cmd some-server", Some(PackageRunner::Npx));
        check("cmd /c npx -y some-server", Some(PackageRunner::Npx));
        check("npm exec -- some-server", Some(PackageRunner::Npx));
        check("npm start", None);
        check("bunx some-server", Some(PackageRunner::OtherNode));
        check("pnpm --silent dlx some-server", Some(PackageRunner::OtherNode));
        check("pnpm run server", None);
        check("uvx some-server", Some(PackageRunner::Uvx));
        check("uv tool run some-server", Some(PackageRunner::Uvx));
        check("uv --directory run some", Some(PackageRunner::Uvx));
        check("pipx run some-server", Some(PackageRunner::Pipx));
        check("docker run -i --rm some/image", Some(PackageRunner::Container));
        check("docker --context far run -i some/image", Some(PackageRunner::Container));
        check("docker exec -i some sh", None);
        check("node run", None);
        check("", None);
    }
}
