//! The page about client files, and the table of clients.

use pegboard_config::ConfigDialect;
use pegboard_config::clients::{KnownClient, Platform, clients};

const PAGE: &str = include_str!("../../../../docs/clients.md");

/// The table of clients as it appears on the page.
fn table() -> String {
    let mut lines = vec![
        "| client | name it | in a folder | of the user | servers under |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for client in clients() {
        let words: Vec<String> = std::iter::once(client.name())
            .chain(client.aliases().iter().map(String::as_str))
            .map(|word| format!("`{word}`"))
            .collect();
        let (project, _) = client.path_templates(Platform::Linux);
        let project: Vec<String> = project.iter().map(|place| format!("`{place}`")).collect();
        let list = if client.lists_servers() { ", a list" } else { "" };
        lines.push(format!(
            "| {} | {} | {} | {} | `{}`{list} |",
            client.title(),
            words.join(", "),
            if project.is_empty() { "–".to_owned() } else { project.join(", ") },
            user_paths_cell(client),
            client.key_path().join("."),
        ));
    }
    lines.join("\n")
}

/// Returns the user's paths, by platform where they differ.
fn user_paths_cell(client: &KnownClient) -> String {
    let places = |system: Platform| {
        let (_, places) = client.path_templates(system);
        places.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", ")
    };
    let [linux, macos, windows] = Platform::ALL.map(places);
    if linux == macos && macos == windows {
        linux
    } else if linux == macos {
        format!("{linux}; Windows: {windows}")
    } else {
        format!("Linux: {linux}; macOS: {macos}; Windows: {windows}")
    }
}

#[test]
fn the_table_of_clients_is_on_the_page() {
    let table = table();
    let start = PAGE.find("<!-- clients:").unwrap();
    let start = start + PAGE[start..].find("-->\n").unwrap() + "-->\n".len();
    let end = PAGE.find("<!-- end of clients -->").unwrap();
    let expected = format!("\n{table}\n\n");
    if std::env::var_os("PEGBOARD_WRITE_DOCS").is_some() {
        let page = format!("{}{expected}{}", &PAGE[..start], &PAGE[end..]);
        std::fs::write("../../docs/clients.md", page).unwrap();
        return;
    }
    assert!(
        PAGE[start..end] == expected,
        "run this test with PEGBOARD_WRITE_DOCS=1, which writes it:\n{table}"
    );
}

#[test]
fn every_dialect_is_on_the_page() {
    for dialect in ConfigDialect::ALL {
        let title = dialect.title();
        assert!(PAGE.contains(&format!("| {title} |")), "{title} is not on the page");
    }
}

#[test]
fn every_client_has_a_file_among_the_fixtures() {
    for client in clients() {
        let folder = std::path::Path::new("tests/fixtures").join(client.name());
        assert!(folder.is_dir(), "there is no file of {}", client.title());
    }
}
