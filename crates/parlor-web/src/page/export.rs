//! A whole session as one file: a page without a script that loads nothing.

use std::path::Path;
use std::sync::Arc;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use parlor_client::Error;
use parlor_server::hub::{Hub, Role};
use parlor_session::MessageNumbers;

use super::hub_client::HubConnector;
use super::session_row::SessionRow;
use crate::assets;
use crate::render::content_block::MediaSource;
use crate::render::text::clean_line;
use crate::render::{EntryContext, entry};

/// The content security policy: the style sheet and media that are part of the file, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; base-uri 'none'; \
    form-action 'none'";

/// Renders a session with all its entries.
pub(super) async fn export(hub: &Arc<Hub>, row: &SessionRow) -> Result<Markup, Error> {
    let client = HubConnector::new(Role::Observer).connect(hub).await?;
    let session = client.load(&row.id, Path::new(&row.cwd)).await;
    let transcript = session.map(|session| session.transcript());
    client.disconnect().await;
    let transcript = &*transcript?;
    let numbers = MessageNumbers::of(transcript);
    let title = clean_line(&row.title);
    Ok(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title) }
                style { (PreEscaped(assets::STYLE)) }
            }
            body.export {
                (assets::icons())
                header.page {
                    h1 { (title) }
                    dl.facts {
                        dt { "Session" } dd { (row.id) }
                        dt { "Agent" } dd { (clean_line(&row.agent)) }
                        dt { "Directory" } dd { (clean_line(&row.cwd)) }
                    }
                }
                main {
                    ol.log {
                        @for one in transcript.entries() {
                            @let context = EntryContext {
                                transcript,
                                agent: &row.agent,
                                cwd: &row.cwd,
                                media: MediaSource::Embedded,
                                number: numbers.number_of(one),
                                created_at: None,
                                is_waiting: false,
                            };
                            @if let Some(element) = entry(one, &context) { (element) }
                        }
                    }
                }
            }
        }
    })
}
