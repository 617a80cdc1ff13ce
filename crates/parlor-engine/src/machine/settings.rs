//! The mode, model and options that the agent reports, and those that it refused when it was restored.

use parlor_dialect::live;
use parlor_dialect::settings::{Setting, Settings};
use parlor_json::Object;
use parlor_session::Update;
use parlor_session::session::Input;
use parlor_wire::RpcError;

use super::SessionMachine;
use crate::opening::{RefusedSetting, RefusedSettings};

impl SessionMachine {
    /// Takes the error for a prompt that is not sent because the agent refused settings. A setting that the agent no longer has
    /// is reported once: sending the prompt again accepts that. One that it has must be set by a client first.
    pub(super) fn take_refusal(&mut self) -> Option<RpcError> {
        let refused = self.agent.refused_settings.take()?;
        let error = refused.error.clone();
        self.set_refused(refused.after_report());
        Some(error)
    }

    /// Stores the refused settings, so that they are applied again at the next restore.
    pub(super) fn set_refused(&mut self, refused: Option<RefusedSettings>) {
        let before = self.rows.data.refused_settings.take();
        self.rows.data.set_refused(refused.as_ref());
        self.agent.refused_settings = refused;
        if self.rows.data.refused_settings != before {
            self.rows.on_data_changed();
        }
    }

    /// Clears refused settings that the agent now reports. Only the agent's own updates count.
    pub(super) fn on_settings_reported(&mut self, update: &Update) {
        let Some(refused) = &self.agent.refused_settings else { return };
        let mut reported = Settings::default();
        reported.report(update);
        let is_it = |one: &&RefusedSetting| reported.get(&one.setting).as_ref() == Some(&one.value);
        let settings: Vec<_> = refused.settings.iter().filter(is_it).map(|one| one.setting.clone()).collect();
        settings.iter().for_each(|setting| self.on_setting_chosen(setting));
    }

    /// Removes a setting from the refused ones: a client has set it, or the agent reports it.
    pub(super) fn on_setting_chosen(&mut self, setting: &Setting) {
        let Some(mut refused) = self.agent.refused_settings.take() else { return };
        refused.settings.retain(|one| one.setting != *setting);
        self.set_refused(Some(refused).filter(|refused| !refused.settings.is_empty()));
    }

    /// Applies modes, options and commands that a response of the agent reports.
    pub(super) fn apply_reported_settings(&mut self, result: &Object) {
        for update in live::updates_from_response(result) {
            self.on_settings_reported(&update);
            self.step(Input::ServerUpdate(update));
        }
    }
}
