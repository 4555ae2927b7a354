//! The page about the files of others, and the table of clients.

use pegboard_config::Dialect;
use pegboard_config::clients::{Client, Layout, System, clients};

const PAGE: &str = include_str!("../../../../docs/clients.md");

/// The table of clients as it stands on the page.
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
        let (project, _) = client.written_places(System::Linux);
        let project: Vec<String> = project.iter().map(|place| format!("`{place}`")).collect();
        let list = if client.layout() == Layout::Object { "" } else { ", a list" };
        lines.push(format!(
            "| {} | {} | {} | {} | `{}`{list} |",
            client.title(),
            words.join(", "),
            if project.is_empty() { "–".to_owned() } else { project.join(", ") },
            of_user(client),
            client.way().join("."),
        ));
    }
    lines.join("\n")
}

/// The places of a user, system by system where they differ.
fn of_user(client: &Client) -> String {
    let places = |system: System| {
        let (_, places) = client.written_places(system);
        places.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", ")
    };
    let [linux, macos, windows] = System::ALL.map(places);
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
    for dialect in Dialect::ALL {
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
