//! Lists to choose from: sessions, commands, history, agents and options.

use parlor_client::Json;

use crate::app::{App, Focus};
use crate::clean::Clean;
use crate::event::{Call, Effect, SessionCall};
use crate::keys::{Action, KeyContext};
use crate::overlay::{AskPurpose, Choice, Overlay, PickItem, Picker, PickerKind};
use crate::sessions::RowState;
use crate::theme::{Mark, Role};

impl App {
    pub(super) fn pick_session(&mut self) {
        let order = |state: RowState| match state {
            RowState::NeedsYou => 0,
            RowState::Running => 1,
            RowState::Failed | RowState::Idle => 2,
        };
        let mut rows = self.sessions.latest_first();
        rows.sort_by_key(|row| order(row.state));
        let now = self.look.now;
        let item = |row: &crate::sessions::SessionRow| PickItem {
            section: None,
            mark: crate::app::draw::state_mark(row),
            name: row.title.clone(),
            about: Clean::line(&format!("{}  {}", row.agent, self.look.short_path(&row.cwd))),
            right: Clean::line(&crate::app::draw::age_of(row, now)),
            choice: Choice::Session(row.id.clone()),
            needs_confirmation: false,
        };
        let items = rows.into_iter().map(item).collect();
        self.overlays.push(Overlay::Picker(Picker::new(PickerKind::Session, items)));
    }

    /// Offers a new session with the text of the picker of sessions.
    pub(super) fn refresh_picker(&mut self) {
        let agent = self.agent.clone().or_else(|| self.default_agent());
        let with = agent.map(|agent| format!(" with {agent}")).unwrap_or_default();
        let path = self.look.short_path(&self.new_cwd);
        let Some(Overlay::Picker(picker)) = self.overlays.last_mut() else { return };
        if picker.kind != PickerKind::Session {
            return;
        }
        picker.items.retain(|item| !matches!(item.choice, Choice::NewSession(_)));
        let query = picker.query.text().trim().to_owned();
        if !query.is_empty() {
            picker.items.push(PickItem {
                section: None,
                mark: None,
                name: Clean::line(&format!("+ New session \"{query}\" in {path}{with}")),
                about: Clean::default(),
                right: Clean::default(),
                choice: Choice::NewSession(query),
                needs_confirmation: false,
            });
        }
        picker.filter();
    }

    pub(super) fn pick_command(&mut self) {
        const COMMANDS: [(Choice, &str); 18] = [
            (Choice::Action(Action::OpenSession), "Open a session"),
            (Choice::Action(Action::NewSession), "New session"),
            (Choice::Action(Action::Inbox), "Inbox"),
            (Choice::Action(Action::Search), "Search all sessions"),
            (Choice::Action(Action::Options), "Model, mode and options"),
            (Choice::Action(Action::Fork), "Fork here"),
            (Choice::Action(Action::Edit), "Edit the prompt"),
            (Choice::Action(Action::Regenerate), "Regenerate the answer"),
            (Choice::Action(Action::OtherAgent), "Continue with another agent"),
            (Choice::Action(Action::ForkTree), "Fork tree"),
            (Choice::Action(Action::Title), "Change the title"),
            (Choice::Directory, "Directory of new sessions"),
            (Choice::Action(Action::Archive), "Archive or restore this session"),
            (Choice::Action(Action::Archived), "Show or hide archived sessions"),
            (Choice::Action(Action::Delete), "Delete this session"),
            (Choice::Action(Action::Undo), "Undo"),
            (Choice::Action(Action::Help), "Help"),
            (Choice::Action(Action::Detach), "Detach"),
        ];
        let item = |(choice, name): (Choice, &str)| {
            let contexts = [KeyContext::Messages, KeyContext::Sessions];
            let key = match choice {
                Choice::Action(Action::Detach) => Some("Ctrl-C Ctrl-C".to_owned()),
                Choice::Action(action) => contexts
                    .into_iter()
                    .find_map(|context| self.keys.key(context, action))
                    .map(|key| key.to_string()),
                _ => None,
            };
            PickItem {
                section: None,
                mark: None,
                name: Clean::line(name),
                about: Clean::default(),
                right: Clean::line(&key.unwrap_or_default()),
                choice,
                needs_confirmation: false,
            }
        };
        let items = COMMANDS.into_iter().map(item).collect();
        self.overlays.push(Overlay::Picker(Picker::new(PickerKind::Command, items)));
    }

    pub(super) fn pick_history(&mut self) {
        let item = |text: String| PickItem {
            section: None,
            mark: None,
            name: Clean::line(&text),
            about: Clean::default(),
            right: Clean::default(),
            choice: Choice::Text(text),
            needs_confirmation: false,
        };
        let items = self.history().into_iter().map(item).collect();
        self.overlays.push(Overlay::Picker(Picker::new(PickerKind::History, items)));
    }

    pub(super) fn pick_agent(&mut self, is_fork: bool, effects: &mut Vec<Effect>) {
        // Agents that were installed or logged in to meanwhile are listed the next time.
        effects.push(Effect::Send(Call::Agents));
        let chosen = if is_fork {
            self.open_id().and_then(|id| Some(self.sessions.get(&id)?.agent.to_string()))
        } else {
            self.agent.clone().or_else(|| self.default_agent())
        };
        let item = |agent: &crate::event::AgentInfo| PickItem {
            section: None,
            mark: None,
            name: Clean::line(&agent.name),
            about: Clean::line(agent.state()),
            right: Clean::line(if Some(&agent.name) == chosen.as_ref() { "now" } else { "" }),
            choice: if is_fork {
                Choice::OtherAgent(agent.name.clone())
            } else {
                Choice::NewAgent(agent.name.clone())
            },
            needs_confirmation: false,
        };
        let mut agents: Vec<_> = self.agents.iter().collect();
        agents.sort_by_key(|agent| !agent.is_installed);
        let items = agents.into_iter().map(item).collect();
        let kind = if is_fork { PickerKind::OtherAgent } else { PickerKind::NewAgent };
        self.overlays.push(Overlay::Picker(Picker::new(kind, items)));
    }

    pub(super) fn pick_option(&mut self, effects: &mut Vec<Effect>) {
        let Some(conversation) = &self.conversation else {
            self.pick_agent(false, effects);
            return;
        };
        let mut items = Vec::new();
        let mut rest = Vec::new();
        for option in conversation.options() {
            let name = Clean::line(&option.name);
            let section = match option.category.as_deref() {
                Some("mode") => Some("Mode"),
                Some("model") => Some("Model"),
                Some(_) | None => None,
            };
            if let Some(section) = section {
                for (index, choice) in option.values.into_iter().enumerate() {
                    let (value, value_name) = (choice.value, Clean::line(&choice.name));
                    let is_now = Some(&value) == option.value.as_ref();
                    let text = value.to_text().unwrap_or_default().to_lowercase();
                    let asks_nothing = section == "Mode"
                        && (text.contains("bypass") || text.contains("yolo") || text.contains("dont_ask"));
                    items.push(PickItem {
                        section: Some(section).filter(|_| index == 0),
                        mark: asks_nothing.then_some((Mark::NeedsYou, Role::Warning)),
                        name: value_name.clone(),
                        about: Clean::line(&choice.description.unwrap_or_default()),
                        right: Clean::line(if is_now { "now" } else { "" }),
                        choice: Choice::Option {
                            option: option.id.clone(),
                            value,
                            note: format!("{}: {value_name}", section.to_lowercase()),
                        },
                        needs_confirmation: asks_nothing && !is_now,
                    });
                }
                continue;
            }
            let values = if option.is_boolean {
                vec![(Json::from(false), Clean::line("off")), (Json::from(true), Clean::line("on"))]
            } else {
                option.values.into_iter().map(|value| (value.value, Clean::line(&value.name))).collect()
            };
            let index =
                values.iter().position(|(value, _)| Some(value) == option.value.as_ref()).unwrap_or(0);
            let shown = values.get(index).map(|(_, name)| name.clone()).unwrap_or_default();
            rest.push(PickItem {
                section: Some("Options").filter(|_| rest.is_empty()),
                mark: None,
                name: name.clone(),
                about: shown,
                right: Clean::default(),
                choice: Choice::Values { option: option.id, name, values, now: index },
                needs_confirmation: false,
            });
        }
        items.extend(rest);
        if items.is_empty() {
            self.note("The agent has no model, mode or other options");
            return;
        }
        let mut picker = Picker::new(PickerKind::Options, items);
        picker.subtitle = self.session_title();
        picker.footer = self.session_facts();
        self.overlays.push(Overlay::Picker(picker));
    }

    /// Facts about the session, below its options.
    fn session_facts(&self) -> Vec<Clean> {
        let Some(conversation) = &self.conversation else { return Vec::new() };
        let mut first = Vec::new();
        if let Some(usage) = self.usage() {
            let (used, size) = (crate::time::tokens(usage.used), crate::time::tokens(usage.size));
            first.push(format!("context {used} of {size} ({}%)", usage.percent()));
            first.extend(usage.cost.map(|cost| format!("cost {cost}")));
        }
        first.push(format!("messages {}", conversation.messages()));
        let second = format!("agent {}   id {}", self.agent_name(), conversation.id);
        vec![Clean::line(&first.join("   ")), Clean::line(&second)]
    }

    /// Does what the chosen item says.
    pub(super) fn choose(&mut self, effects: &mut Vec<Effect>) {
        let Some(Overlay::Picker(picker)) = self.overlays.last_mut() else { return };
        let Some(item) = picker.current().cloned() else { return };
        if item.needs_confirmation && picker.confirming != Some(picker.cursor) {
            picker.confirming = Some(picker.cursor);
            self.note("This mode asks nothing before it acts. Enter again sets it");
            return;
        }
        if let Choice::Values { .. } = item.choice {
            self.change_value(true, effects);
            return;
        }
        self.overlays.pop();
        match item.choice {
            Choice::Session(id) => {
                if let Some(cwd) = self.sessions.get(&id).map(|row| row.cwd.clone()) {
                    self.parents.clear();
                    self.set_focus(Focus::Input);
                    self.open(id, cwd, effects);
                }
            }
            Choice::NewSession(text) => {
                self.new_session(effects);
                self.replace_input(&text);
            }
            Choice::Action(action) => self.run_command(action, effects),
            Choice::Directory => {
                let cwd = self.look.short_path(&self.new_cwd).to_string();
                self.ask("Directory", cwd, AskPurpose::Directory);
            }
            Choice::Option { option, value, note } => {
                let note = if self.is_busy() { format!("{note} (from the next turn)") } else { note };
                self.send_to_session(SessionCall::SetOption { option, value, note }, effects);
            }
            Choice::Values { .. } => {}
            Choice::Text(text) => {
                self.replace_input(&text);
                self.set_focus(Focus::Input);
            }
            Choice::OtherAgent(name) | Choice::NewAgent(name) if !self.is_installed(&name) => {
                self.fail(&format!("{name} is not installed: `parlor agents install {name}` installs it"));
            }
            Choice::OtherAgent(agent) => self.continue_with(agent, effects),
            Choice::NewAgent(name) => {
                let known = self.agents.iter().find(|known| known.name == name);
                let is_out = known.is_some_and(|known| known.is_logged_in == Some(false));
                self.needs_login = (is_out && self.can_log_in).then(|| name.clone());
                self.agent = Some(name);
            }
        }
    }

    fn is_installed(&self, agent: &str) -> bool {
        self.agents.iter().any(|known| known.name == agent && known.is_installed)
    }

    /// Forks the session for another agent, which gets the transcript with its first prompt.
    fn continue_with(&mut self, agent: String, effects: &mut Vec<Effect>) {
        let Some(conversation) = &self.conversation else { return };
        let at = conversation.selected_message();
        let note = format!("Continues with {agent}. Esc returns to the parent.");
        self.start_fork(note, |ticket| SessionCall::Fork { at, agent: Some(agent), ticket }, effects);
    }

    /// Sets the next or previous value of an option.
    pub(super) fn change_value(&mut self, forward: bool, effects: &mut Vec<Effect>) {
        let Some(Overlay::Picker(picker)) = self.overlays.last_mut() else { return };
        let Some((index, _)) = picker.shown.get(picker.cursor) else { return };
        let item = &mut picker.items[*index];
        let Choice::Values { option, name, values, now } = &mut item.choice else { return };
        if values.is_empty() {
            return;
        }
        *now = if forward { (*now + 1) % values.len() } else { (*now + values.len() - 1) % values.len() };
        let (value, shown) = values[*now].clone();
        item.about = shown.clone();
        let note = format!("{name}: {shown}");
        let call = SessionCall::SetOption { option: option.clone(), value, note };
        self.send_to_session(call, effects);
    }

    /// Runs a command of the palette.
    fn run_command(&mut self, action: Action, effects: &mut Vec<Effect>) {
        if self.on_common_action(action, effects) {
            return;
        }
        match action {
            Action::Fork | Action::Edit | Action::Regenerate | Action::OtherAgent => {
                if self.conversation.is_some() {
                    self.branch(action, effects);
                } else {
                    self.note("No session is open");
                }
            }
            Action::ForkTree => self.show_forks(),
            Action::Detach => self.quit(effects),
            Action::Undo => self.undo(effects),
            Action::Archived => {
                self.toggle_archived();
                self.set_focus(Focus::Sessions);
            }
            Action::Title | Action::Archive | Action::Delete => match self.open_id() {
                Some(id) => self.change_session(&id, action, effects),
                None => self.note("No session is open"),
            },
            _ => {}
        }
    }
}
